#!/bin/sh
# Builds everything that a release offers. The same tree gives the same bytes, except for the image, which has the Debian of the day.
set -eu
umask 022

usage() {
  cat <<'TEXT'
Usage: scripts/release.sh [--out DIR] [--image]

Builds the files of a release into DIR (default: dist), which must be empty or new: the Debian packages for amd64
and arm64, the package for npm, the bill of materials (CycloneDX), and SHA256SUMS over them. Run `npm ci` first.

  --out DIR      folder for the files
  --image        also build the container image (scripts/image.sh)
  --help         this text

All files get the time SOURCE_DATE_EPOCH; without it that of the last commit, or without git that of CHANGELOG.md.
Exit codes: 0 done, 64 wrong usage, 69 something needed is missing, 77 not root (--image).
TEXT
}

wrong() { echo "release: $*" >&2; usage >&2; exit 64; }

tree=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
out=$tree/dist
image=
while [ $# -gt 0 ]; do
  case $1 in
    --out) [ $# -ge 2 ] && [ -n "$2" ] || wrong '--out needs a folder'; out=$2; shift 2 ;;
    --image) image=yes; shift ;;
    --help) usage; exit 0 ;;
    *) wrong "unknown argument $1" ;;
  esac
done
mkdir -p "$out"
# Sums over files of other versions would say that they belong together.
[ -z "$(ls -A "$out")" ] || wrong "$out is not empty"

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$tree" log -1 --format=%ct 2>/dev/null || stat -c %Y "$tree/CHANGELOG.md")}
export SOURCE_DATE_EPOCH
version=$("$tree/scripts/node" -p 'require(process.argv[1]).version' "$tree/package.json")

for arch in amd64 arm64; do "$tree/scripts/deb.sh" --arch "$arch" --out "$out"; done
"$tree/scripts/npm.sh" --out "$out"
"$tree/scripts/node" "$tree/scripts/sbom.ts" "$tree" "$SOURCE_DATE_EPOCH" >"$out/postern-$version.cdx.json"
echo "$out/postern-$version.cdx.json"
[ -z "$image" ] || "$tree/scripts/image.sh" --out "$out" "$out/postern_$(echo "$version" | sed 's/-/~/')_$(dpkg --print-architecture).deb"
(cd "$out" && sha256sum -- * >.sums && mv .sums SHA256SUMS)
echo "$out/SHA256SUMS"
