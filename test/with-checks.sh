#!/bin/sh
# Runs the command of its arguments, with the checks of types and lint beside it: types are checked by one processor. Each check prints
# as a whole, after the command. Fails if the command or a check fails.
set -u
said=$(mktemp -d)
trap 'rm -rf "$said"' EXIT
npm run --silent typecheck >"$said/typecheck" 2>&1 &
types=$!
npm run --silent lint >"$said/lint" 2>&1 &
lint=$!
trap 'kill "$types" "$lint"; exit 1' HUP INT TERM
"$@"
status=$?

# ended PID CHECK
ended() {
  verdict=ok
  wait "$1" || verdict=failed status=1
  printf '== npm run %s: %s\n' "$2" "$verdict"
  cat "$said/$2"
}
ended "$types" typecheck
ended "$lint" lint
exit "$status"
