#!/bin/sh
# Builds the container image: a minimal Debian with the package, and nothing from any registry of images.
set -eu
umask 022

usage() {
  cat <<'TEXT'
Usage: scripts/image.sh [--out DIR] PACKAGE

Builds postern_VERSION_ARCH.tar into DIR (default: dist) from a package that scripts/deb.sh built for this machine's
architecture. `podman load` and `docker load` read it, as postern:VERSION and postern:latest. Needs root, debootstrap, and
a mirror of Debian.

  --out DIR      folder for the image
  --help         this text

The image gets the time SOURCE_DATE_EPOCH; without it that of the last commit, or without git that of CHANGELOG.md.
Exit codes: 0 done, 64 wrong usage, 69 something needed is missing, 77 not root.
TEXT
}

fail() { code=$1; shift; echo "image: $*" >&2; exit "$code"; }
wrong() { echo "image: $*" >&2; usage >&2; exit 64; }

tree=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
out=$tree/dist
deb=
while [ $# -gt 0 ]; do
  case $1 in
    --out) [ $# -ge 2 ] && [ -n "$2" ] || wrong '--out needs a folder'; out=$2; shift 2 ;;
    --help) usage; exit 0 ;;
    -*) wrong "unknown argument $1" ;;
    *) [ -z "$deb" ] || wrong 'one package makes an image'; deb=$1; shift ;;
  esac
done
[ -f "$deb" ] || wrong 'the package is missing: "$(scripts/deb.sh)" builds it'
[ "$(id -u)" -eq 0 ] || fail 77 'must be run as root, to set the owners of files'
for program in dpkg-deb debootstrap unshare; do
  command -v "$program" >/dev/null 2>&1 || fail 69 "$program not found: build images on Debian, with debootstrap"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
root=$work/root
version=$(dpkg-deb -f "$deb" Version)
arch=$(dpkg-deb -f "$deb" Architecture)
[ "$arch" = "$(dpkg --print-architecture)" ] || fail 69 "the package is for $arch, but this machine is not"
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$tree" log -1 --format=%ct 2>/dev/null || stat -c %Y "$tree/CHANGELOG.md")}

# The oldest Debian that the package supports, as its tests have it.
debootstrap --variant=minbase bookworm "$root" >&2
# inside COMMAND...: in namespaces of its own, so that nothing stays mounted and nothing keeps running.
inside() { unshare --mount --pid --fork --kill-child --root="$root" --mount-proc=/proc env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@" >&2; }
# The same number in every image, because the volume keeps it.
echo 'postern:x:2525:' >>"$root/etc/group"
echo 'postern:!::' >>"$root/etc/gshadow"
echo 'postern:x:2525:2525::/var/lib/postern:/usr/sbin/nologin' >>"$root/etc/passwd"
echo 'postern:!:1::::::' >>"$root/etc/shadow"
cp "$deb" "$root/postern.deb"
inside apt-get -qq update
inside apt-get -qq -y --no-install-recommends -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-unsafe-io install /postern.deb ca-certificates
inside apt-get clean
rm -rf "$root/postern.deb" "$root"/var/lib/apt/lists/* "$root"/var/log/* "$root"/var/cache/debconf/*-old "$root"/var/cache/ldconfig/*
rm -f "$root/etc/machine-id" "$root/etc/hostname" "$root/etc/resolv.conf"

# The archive that docker and podman write with `save`: the format of OCI has no health check.
archive=$work/archive
mkdir "$archive"
# Without devices: containers get their own, and only root could unpack them.
tar -C "$root" --exclude='./dev/*' --sort=name --numeric-owner --clamp-mtime "--mtime=@$epoch" -cf "$archive/layer.tar" .
rm -rf "$root"
tag=$(printf '%s' "$version" | tr '~' '-')
layer=$(sha256sum <"$archive/layer.tar" | cut -d ' ' -f 1)
sed -e "s|@ARCH@|$arch|" -e "s|@VERSION@|$tag|" -e "s|@LAYER@|$layer|" -e "s|@CREATED@|$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)|" \
  "$tree/scripts/image/config.json" >"$archive/config.json"
printf '[{"Config":"config.json","RepoTags":["postern:%s","postern:latest"],"Layers":["layer.tar"]}]\n' "$tag" >"$archive/manifest.json"
mkdir -p "$out"
image=$out/postern_${version}_$arch.tar
tar -C "$archive" --sort=name --numeric-owner --owner=0 --group=0 "--mtime=@$epoch" -cf "$image" config.json layer.tar manifest.json
echo "$image"
