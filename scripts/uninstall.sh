#!/bin/sh
# Takes away what install.sh installed. Settings, queue and user stay unless --purge is given.
set -eu

usage() {
  cat <<'TEXT'
Usage: scripts/uninstall.sh [--prefix DIR] [--root DIR] [--purge] [--dry-run]

Stops and disables the service and its sockets, and removes PREFIX/lib/postern, PREFIX/bin/postern and the units.

  --prefix DIR   /usr (the default) or /usr/local, as passed to install.sh
  --root DIR     uninstall below DIR, as passed to install.sh
  --purge        also remove /etc/postern, /var/lib/postern with all waiting mail, and the user
  --dry-run      only print what would be done
  --help         this text

Exit codes: 0 done, 64 wrong usage, 69 refused, because the folder is not an installation of Postern, 77 not root.
TEXT
}

fail() { code=$1; shift; echo "uninstall: $*" >&2; exit "$code"; }
wrong() { echo "uninstall: $*" >&2; usage >&2; exit 64; }

prefix=/usr
root=
dry=
purge=
while [ $# -gt 0 ]; do
  case $1 in
    --prefix) [ $# -ge 2 ] || wrong '--prefix needs a folder'; prefix=${2%/}; shift 2 ;;
    --root) [ $# -ge 2 ] || wrong '--root needs a folder'; root=${2%/}; shift 2; [ -n "$root" ] || wrong '--root / is the host itself: leave it out' ;;
    --purge) purge=yes; shift ;;
    --dry-run) dry=yes; shift ;;
    --help) usage; exit 0 ;;
    *) wrong "unknown argument $1" ;;
  esac
done
case $prefix in /*) ;; *) wrong '--prefix must be an absolute path' ;; esac
case $root in ''|/*) ;; *) wrong '--root must be an absolute path' ;; esac
if [ -z "$root$dry" ] && [ "$(id -u)" -ne 0 ]; then fail 77 'must be run as root (or with --root DIR)'; fi

lib=$root$prefix/lib/postern

changed=
does() { changed=yes; echo "uninstall: $*"; }

# take PATH: removes it, if it is there. Never follows a link.
take() {
  if [ ! -e "$1" ] && [ ! -L "$1" ]; then return 0; fi
  does "removes $1"
  [ -n "$dry" ] || rm -rf -- "$1"
}

if [ -e "$lib" ] && ! grep -q '"name": "postern"' "$lib/package.json" 2>/dev/null; then
  fail 69 "$lib is not an installation of Postern; nothing was removed"
fi

if [ -z "$root" ] && [ -d /run/systemd/system ] && [ -e "$prefix/lib/systemd/system/postern.service" ]; then
  does 'stops the service'
  [ -n "$dry" ] || systemctl disable --now postern.service postern-smtp.socket postern-submission.socket postern-submissions.socket postern-http.socket postern-https.socket
fi
take "$root$prefix/lib/systemd/system/postern.service"
for socket in smtp submission submissions http https; do take "$root$prefix/lib/systemd/system/postern-$socket.socket"; done
take "$root$prefix/bin/postern"
take "$lib"
take "$root/var/cache/postern"
if [ -n "$purge" ]; then
  take "$root/etc/postern"
  take "$root/var/lib/postern"
  if [ -z "$root" ] && getent passwd postern >/dev/null; then
    does 'removes the user postern'
    [ -n "$dry" ] || userdel postern
  fi
fi

if [ -z "$changed" ]; then
  echo 'uninstall: nothing was installed'
  exit 0
fi
if [ -z "$root$dry" ] && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
if [ -z "$purge" ]; then echo "uninstall: settings in $root/etc/postern and mail in $root/var/lib/postern were kept (--purge removes them)"; fi
