# Sourced by .ci/run: how a step is run, what is kept of it, and what is said at the end. `$logs` is a folder for it.

say() { printf '\n== %s\n' "$*"; }

# Seconds a step may take, with four others beside it: one that hangs must not hold the machine.
limit=1200
limited() { timeout --kill-after=10 "$limit" "$@"; }

# Sets `used` to the seconds of processor that the commands of this shell have taken so far.
processor() {
  local file=$logs/times.$BASHPID
  times >"$file" # not in a subshell, which would tell of itself
  used=$(awk -F '[ms ]+' 'NR == 2 { print int($1 * 60 + $2 + $3 * 60 + $4) }' "$file")
}

# ended NAME STATUS SECONDS PROCESSOR FILE: says how a step went, and keeps it and its output.
ended() {
  local name=$1 status=$2 seconds=$3 processor=$4 out=$5 verdict=ok
  mkdir -p "$logs/steps/$name"
  echo "$status" >"$logs/steps/$name/status"
  mv "$out" "$logs/steps/$name/out"
  [ "$status" -eq 0 ] || verdict=FAILED
  printf -- '-- %s: %s after %d s, %d s of processor\n' "$name" "$verdict" "$seconds" "$processor"
}

# Names of the steps that failed.
broken() { (cd "$logs/steps" && grep -Lx 0 -- */status | sed 's,/status$,,'); }

# What a failed step said of its failures: mocha lists them at the end.
failures() { awk '/^ *[0-9]+ failing/ { found = 1 } found' "$logs/steps/$1/out" | head -n 60; }

total() { cat "$logs"/steps/*/out | awk -v word="$1" '$1 ~ /^[0-9]+$/ && $2 == word { sum += $1 } END { print sum + 0 }'; }

# step NAME COMMAND...: runs alone, and shows what it prints as it comes.
step() {
  wait
  local name=$1 start=$SECONDS out status used before
  shift
  out=$(mktemp -p "$logs")
  processor
  before=$used
  say "$name: $*"
  limited "$@" 2>&1 | tee "$out"
  status=${PIPESTATUS[0]}
  processor
  ended "$name" "$status" $((SECONDS - start)) $((used - before)) "$out"
}

# beside NAME COMMAND...: runs with four others, and shows what it printed as a whole when it ends. Most of them wait for more than half
# of their time: with three others, two processors were idle for a quarter of it.
beside() {
  while [ "$(jobs -rp | wc -l)" -ge 5 ]; do wait -n; done
  buffered "$@" &
}
buffered() {
  local name=$1 start=$SECONDS out pid status used
  shift
  out=$(mktemp -p "$logs")
  timeout --kill-after=10 "$limit" "$@" >"$out" 2>&1 & # and not `limited`: the signal below must reach it
  pid=$!
  trap 'kill "$pid"; wait "$pid"; exit 1' TERM
  wait "$pid"
  status=$?
  processor
  {
    flock 9
    say "$name: $*"
    cat "$out"
    ended "$name" "$status" $((SECONDS - start)) "$used" "$out"
  } 9>>"$logs/turn"
}

# What the checks use beyond npm. Tests whose program is missing say so and are left out.
packages() {
  local wanted=(strace python3 python3-django python3-django-anymail python3-dkim python3-nacl opendkim opendkim-tools libmail-dkim-perl python3-dnspython swaks systemd shellcheck chromium postfix prometheus xfsprogs debootstrap systemd-container podman runc dpkg-dev lintian fail2ban python3-systemd man-db groff-base zsh fish php-cli php-curl php-monolog php-symfony-mailchimp-mailer php-symfony-http-client php-guzzlehttp-guzzle php-swiftmailer ruby ruby-excon ruby-actionmailbox ruby-railties ruby-sqlite3 ruby-webrick rspamd spamassassin spamd clamav-daemon clamav-milter unbound nsd nginx-light pebble opendmarc bind9-dnsutils iproute2 nftables) missing=() known=() root=()
  command -v apt-get >/dev/null || { echo 'no apt-get here: what needs Debian packages is left out'; return 0; }
  for package in "${wanted[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || { echo "all there: ${wanted[*]}"; return 0; }
  if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || { echo "not root, so not installed: ${missing[*]}; what needs them is left out"; return 0; }
    root=(sudo -n --preserve-env=DEBIAN_FRONTEND)
  fi
  # A mirror that nobody can reach must not hold the run.
  local patience=(-o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 -o DPkg::Lock::Timeout=120)
  # An update that fails in part (one mirror of several) may still be enough.
  timeout 120 "${root[@]}" apt-get update -qq "${patience[@]}" || echo 'apt-get update failed; trying with the lists that are there'
  for package in "${missing[@]}"; do
    LC_ALL=C apt-cache policy "$package" 2>/dev/null | grep -q 'Candidate: [0-9]' && known+=("$package")
  done
  [ ${#known[@]} -gt 0 ] || { echo "no mirror has them: ${missing[*]}; what needs them is left out"; return 0; }
  echo "installing: ${known[*]}"
  # Without a configuration postfix asks nothing, and without one it cannot start: the tests run instances of their own.
  "${root[@]}" debconf-set-selections <<<'postfix postfix/main_mailer_type select No configuration' || echo 'debconf takes no answers here'
  # Scanners and other services must not start: the tests run instances of their own, and freshclam would ask the network.
  local policy=/usr/sbin/policy-rc.d
  if [ -e "$policy" ]; then policy=; else printf '#!/bin/sh\nexit 101\n' | "${root[@]}" tee "$policy" >/dev/null && "${root[@]}" chmod 755 "$policy"; fi
  if ! timeout 300 "${root[@]}" apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 "${patience[@]}" "${known[@]}" >"$logs/apt" 2>&1; then
    tail -n 5 "$logs/apt"
    echo 'not all could be installed; what needs them is left out'
  fi
  [ -z "$policy" ] || "${root[@]}" rm -f "$policy"
}

# A clean Debian, which the steps that install the package copy: $DEBIAN_ROOT. Where none can be made they say so themselves.
clean_debian() {
  [ "$(id -u)" -eq 0 ] || { echo 'not root: none can be made'; return 0; }
  if scripts/node --input-type=module -e "await (await import('./test/support/package/machine.ts')).makeRoot(process.argv[1])" "$DEBIAN_ROOT.made"; then
    mv "$DEBIAN_ROOT.made" "$DEBIAN_ROOT"
  else
    echo 'none can be made here'
  fi
}

# Sets `memory` to a command that runs another with its files in memory. Steps that build and unpack packages write and delete thousands of
# files, which took the disk a third of their processor time. The file system is in a namespace of the command's own, so it is gone when
# that has ended, however it ended. Two such steps take 4 GB; where less than 12 GB are free, the files stay on the disk.
keep_in_memory() {
  local needed=$((12 << 20)) available bound # KiB
  memory=()
  available=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
  bound=$(cat /sys/fs/cgroup/memory.max 2>/dev/null) || bound=max
  [ "$bound" = max ] || [ $((bound / 1024)) -gt "$available" ] || available=$((bound / 1024))
  [ "$(id -u)" -eq 0 ] && [ "$available" -ge "$needed" ] || return 0
  mkdir "$logs/memory"
  # shellcheck disable=SC2016 # the other shell reads it
  memory=(unshare --mount sh -c 'mount -t tmpfs -o mode=755 tmpfs "$0" && TMPDIR=$0 TEST_FILES=$0 exec "$@"' "$logs/memory")
  "${memory[@]}" true || memory=()
}

# there PROGRAM...: whether all of them can be run here; says so when not. What needs them is left out then.
there() {
  local program
  for program in "$@"; do
    command -v "$program" >/dev/null || { say "left out, $program is not there: what needs it"; return 1; }
  done
}

# The last lines of a run. Succeeds when every step did.
summary() {
  local passed failed
  passed=$(total passing)
  failed=$(total failing)
  broken | while read -r name; do printf 'Failed: %s (exit %d)\n' "$name" "$(cat "$logs/steps/$name/status")"; failures "$name"; done
  printf '%d passed, %d failed\n' "$passed" "$failed"
  [ -z "$(broken)" ] && [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
