#!/bin/sh
# Installs Postern from its tree on a Debian host, or into a folder. Running it again changes only what differs.
set -eu
umask 022

usage() {
  cat <<'TEXT'
Usage: scripts/install.sh [--prefix DIR] [--root DIR] [--packages DIR] [--dry-run]

Creates the system user "postern", /etc/postern (settings, credentials, certificates) and /var/lib/postern (queue),
copies the tree with its pinned runtime to PREFIX/lib/postern, and installs PREFIX/bin/postern and the systemd units.
Existing settings and data are kept. Nothing is started; the next steps are printed.

  --prefix DIR   /usr (the default) or /usr/local
  --root DIR     install below DIR, for an image, a package or a trial: without user, owners and systemctl
  --packages DIR folder with the npm packages to install (default: node_modules of the tree)
  --dry-run      only print what would be done
  --help         this text

Exit codes: 0 done, 64 wrong usage, 69 something needed is missing, 77 not root.
TEXT
}

fail() { code=$1; shift; echo "install: $*" >&2; exit "$code"; }
wrong() { echo "install: $*" >&2; usage >&2; exit 64; }

tree=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
prefix=/usr
root=
modules=$tree/node_modules
dry=
while [ $# -gt 0 ]; do
  case $1 in
    --prefix) [ $# -ge 2 ] || wrong '--prefix needs a folder'; prefix=${2%/}; shift 2 ;;
    --root) [ $# -ge 2 ] || wrong '--root needs a folder'; root=${2%/}; shift 2; [ -n "$root" ] || wrong '--root / is the host itself: leave it out' ;;
    --packages) [ $# -ge 2 ] && [ -f "$2/.package-lock.json" ] || wrong '--packages needs a node_modules folder of npm'; modules=$2; shift 2 ;;
    --dry-run) dry=yes; shift ;;
    --help) usage; exit 0 ;;
    *) wrong "unknown argument $1" ;;
  esac
done
case $prefix in /*) ;; *) wrong '--prefix must be an absolute path' ;; esac
case $root in ''|/*) ;; *) wrong '--root must be an absolute path' ;; esac
if [ -z "$root$dry" ] && [ "$(id -u)" -ne 0 ]; then fail 77 'must be run as root (or with --root DIR)'; fi

lib=$root$prefix/lib/postern
bin=$root$prefix/bin/postern
units=$root$prefix/lib/systemd/system
etc=$root/etc/postern
state=$root/var/lib/postern

changed=
work=$(mktemp -d)
next=
trap 'rm -rf "$work"; [ -z "$next" ] || rm -rf "$next"' EXIT
trap 'exit 1' HUP INT TERM

does() { changed=yes; echo "install: $*"; }

make_user() {
  [ -z "$root" ] || return 0
  if getent passwd postern >/dev/null; then return 0; fi
  does 'user postern'
  [ -n "$dry" ] || useradd --system --user-group --no-create-home --home-dir /var/lib/postern --shell /usr/sbin/nologin postern
}

# own OWNER PATH: owners exist on the host only.
own() { [ -n "$root" ] || chown "$1" "$2"; }

# folder MODE OWNER PATH
folder() {
  [ ! -d "$3" ] || return 0
  does "folder $3"
  [ -z "$dry" ] || return 0
  mkdir -p "$3"
  chmod "$1" "$3"
  own "$2" "$3"
}

# file MODE OWNER SOURCE PATH
file() {
  if [ -f "$4" ] && cmp -s "$3" "$4" && [ "$(stat -c %a "$4")" = "$1" ]; then return 0; fi
  does "file $4"
  [ -z "$dry" ] || return 0
  mkdir -p "$(dirname -- "$4")"
  cp "$3" "$4.new"
  chmod "$1" "$4.new"
  own "$2" "$4.new"
  mv "$4.new" "$4"
}

# What only development needs, as the lock file of the installed packages says; and of the runtime all but the program.
unneeded() {
  # shellcheck disable=SC2016 # the program is JavaScript
  "$tree/scripts/node" -e '
    const { packages } = JSON.parse(require("fs").readFileSync(process.argv[1], "utf8"));
    for (const [path, { dev, devOptional }] of Object.entries(packages)) if (dev || devOptional) console.log(path);
    for (const arch of ["x64", "arm64"])
      for (const part of ["include", "share", "CHANGELOG.md", "README.md"]) console.log(`node_modules/node-linux-${arch}/${part}`);
    console.log("node_modules/.package-lock.json\nnode_modules/.cache");
  ' "$modules/.package-lock.json"
}

packages() {
  if [ -f "$modules/.package-lock.json" ]; then
    unneeded >"$work/unneeded"
    # GNU tar, as Debian has it. Through a file, because a pipe would hide that the first half failed.
    tar -C "$(dirname -- "$modules")" -cf "$work/packages.tar" --anchored --no-wildcards --exclude-from="$work/unneeded" node_modules
    tar -C "$next" -xf "$work/packages.tar" --no-same-owner
    rm "$work/packages.tar"
    find "$next/node_modules" -path '*/.bin/*' -xtype l -delete
    # Scopes whose packages were left out; without them it is what "npm ci --omit=dev" brings, file for file.
    find "$next/node_modules" -type d -empty -delete
  else
    command -v npm >/dev/null 2>&1 || fail 69 'no node_modules folder found: run "npm ci --omit=dev" in the tree first, or install npm'
    (cd "$next" && npm ci --omit=dev)
    rm -f "$next/node_modules/.package-lock.json"
  fi
}

program() {
  if [ -n "$dry" ]; then does "tree $lib"; return 0; fi
  mkdir -p "$(dirname -- "$lib")"
  next=$lib.next
  rm -rf "$next"
  mkdir "$next"
  for item in package.json package-lock.json .npmrc README.md LICENSE SECURITY.md CHANGELOG.md src config docs scripts systemd; do
    [ ! -e "$tree/$item" ] || cp -R "$tree/$item" "$next/"
  done
  packages
  chmod -R u=rwX,go=rX "$next"
  if [ -d "$lib" ] && diff -r --no-dereference -q "$next" "$lib" >/dev/null 2>&1; then
    rm -rf "$next"
  else
    does "tree $lib"
    # A running process keeps the files it has open; the names change in one step each.
    rm -rf "$lib.previous"
    [ ! -d "$lib" ] || mv "$lib" "$lib.previous"
    mv "$next" "$lib"
    rm -rf "$lib.previous"
  fi
  next=
}

wrapper() {
  cat <<TEXT
#!/bin/sh
# Postern as it was installed.
here=\$(dirname -- "\$(readlink -f -- "\$0")")
postern=\$here/../lib/postern/scripts/postern
# A folder that may not be looked into holds settings too: the command must not go by the defaults instead, and says so.
if [ -z "\${POSTERN_CONFIG:-}" ] && { [ -e /etc/postern/postern.yaml ] || { [ -d /etc/postern ] && [ ! -x /etc/postern ]; }; }; then
  POSTERN_CONFIG=/etc/postern/postern.yaml
  export POSTERN_CONFIG
fi
# What root writes into the queue the service could not read: root becomes the service's user first. setup does that itself.
if [ "\$here" = "$prefix/bin" ] && [ "\${1:-}" != setup ] && [ "\$(id -u)" = 0 ] && id -u postern >/dev/null 2>&1; then
  # Without compiling again what the service has compiled. Its user only: root must not run what others can write.
  NODE_COMPILE_CACHE=\${NODE_COMPILE_CACHE:-/var/cache/postern}
  export NODE_COMPILE_CACHE
  exec setpriv --reuid=postern --regid=postern --init-groups -- "\$postern" "\$@"
fi
exec "\$postern" "\$@"
TEXT
}

unit() {
  sed -e "s|/usr/bin/postern|$prefix/bin/postern|" -e "s|/usr/lib/postern|$prefix/lib/postern|" "$tree/systemd/$1" >"$work/$1"
  file 644 root:root "$work/$1" "$units/$1"
}

make_user
program
wrapper >"$work/postern"
file 755 root:root "$work/postern" "$bin"
unit postern.service
unit postern-smtp.socket
unit postern-submission.socket
unit postern-submissions.socket
unit postern-http.socket
unit postern-https.socket
folder 750 root:postern "$etc"
# Read by systemd as root and handed to the service; nobody else needs to look in.
folder 700 root:root "$etc/credentials"
folder 750 root:postern "$etc/tls"
folder 750 postern:postern "$state"
[ -e "$etc/postern.yaml" ] || file 640 root:postern "$tree/config/production.example.yaml" "$etc/postern.yaml"

if [ -z "$changed" ]; then
  echo 'install: everything is up to date'
  exit 0
fi
if [ -z "$root$dry" ] && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
cat <<TEXT

Next: postern setup           (after an upgrade: systemctl restart postern)
Guide: $lib/docs/operations.md
TEXT
