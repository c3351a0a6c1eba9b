#!/bin/sh
# Checks the systemd units of a tree: that systemd understands every line, and that the service is shut in well enough.
set -eu

usage() {
  cat <<'TEXT'
Usage: scripts/check-units.sh [--units DIR] [--max SCORE]

Runs `systemd-analyze verify` on the units and `systemd-analyze security --offline=true` on the service, and fails when
a line is not understood or the exposure is above SCORE (1.6 when not given). Needs systemd 251 or later.
TEXT
}

units=$(CDPATH='' cd -- "$(dirname -- "$0")/../systemd" && pwd)
max=1.6
while [ $# -gt 0 ]; do
  case $1 in
    --units) [ $# -ge 2 ] || { usage >&2; exit 64; }; units=$2; shift 2 ;;
    --max) [ $# -ge 2 ] || { usage >&2; exit 64; }; max=$2; shift 2 ;;
    --help) usage; exit 0 ;;
    *) usage >&2; exit 64 ;;
  esac
done

if ! command -v systemd-analyze >/dev/null 2>&1; then
  echo 'check-units: systemd-analyze is not installed' >&2
  exit 69
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# verify looks whether the programs of a unit are there. On a machine without Postern they are not, so a copy of the
# units names a file that is; and units are found by the folder they lie in.
for unit in "$units"/postern.service "$units"/postern-*.socket; do
  sed -e 's|/usr/bin/postern |/bin/true |' "$unit" >"$work/$(basename "$unit")"
done

# verify warns about other units of the machine too, and answers 0 for lines it does not know: only what it says of ours counts.
SYSTEMD_UNIT_PATH="$work:" systemd-analyze verify --man=no "$work"/postern.service "$work"/postern-*.socket \
  >"$work/said" 2>&1 && status=0 || status=$?
if [ "$status" -ne 0 ] || grep -q 'postern' "$work/said"; then
  echo 'check-units: systemd-analyze verify found:' >&2
  cat "$work/said" >&2
  exit 1
fi
echo 'check-units: systemd-analyze verify understands all units'

# --threshold takes tenths of the score and fails above it.
tenths=$(awk -v max="$max" 'BEGIN { printf "%d", max * 10 + 0.5 }')
systemd-analyze security --offline=true --no-pager --threshold="$tenths" "$work/postern.service" \
  >"$work/score" 2>&1 && status=0 || status=$?
overall=$(grep -a 'Overall exposure level' "$work/score" || true)
if [ -z "$overall" ]; then
  cat "$work/score" >&2
  exit 1
fi
# `… level for postern.service: 1.3 OK :-)`, or with a picture instead of the smiley: it depends on the terminal.
score=$(printf '%s\n' "$overall" | sed -n 's/.*postern\.service: *\([0-9][0-9.]*\) .*/\1/p')
if [ "$status" -ne 0 ] || [ -z "$score" ] || ! awk -v score="$score" -v max="$max" 'BEGIN { exit !(score + 0 <= max + 0) }'; then
  echo "check-units: exposure is $score, and must be at most $max" >&2
  grep -a '✗' "$work/score" >&2 || true
  exit 1
fi
echo "check-units: exposure is $score (at most $max)"
