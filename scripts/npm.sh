#!/bin/sh
# Builds the npm package from the tree: JavaScript with source maps, because Node runs no TypeScript below node_modules.
set -eu
umask 022

usage() {
  cat <<'TEXT'
Usage: scripts/npm.sh [--out DIR]

Builds postern-VERSION.tgz into DIR (default: dist), for "npm install -g", "npx" or a registry. Run `npm ci` first.

  --out DIR      folder for the package
  --help         this text

Exit codes: 0 done, 64 wrong usage, 69 something needed is missing.
TEXT
}

fail() { code=$1; shift; echo "npm: $*" >&2; exit "$code"; }

tree=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
out=$tree/dist
while [ $# -gt 0 ]; do
  case $1 in
    --out) [ $# -ge 2 ] && [ -n "$2" ] || { usage >&2; exit 64; }; out=$2; shift 2 ;;
    --help) usage; exit 0 ;;
    *) echo "npm: unknown argument $1" >&2; usage >&2; exit 64 ;;
  esac
done
[ -e "$tree/node_modules/typescript/bin/tsc" ] || fail 69 'no compiler found: run "npm ci" first'
command -v npm >/dev/null 2>&1 || fail 69 'npm not found'

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
trap 'exit 1' HUP INT TERM

"$tree/scripts/node" "$tree/node_modules/typescript/bin/tsc" -p "$tree/scripts/npm.json" --outDir "$stage/src"
# The console's page is sent to browsers, and loses its types there.
cp -R "$tree/src/console/web" "$stage/src/console/"
cp -R "$tree/src/base/wasm" "$stage/src/base/"
mkdir "$stage/scripts"
cp "$tree/scripts/postern" "$tree/scripts/node" "$stage/scripts/"
cp -R "$tree/config" "$tree/docs" "$stage/"
cp "$tree/README.md" "$tree/CHANGELOG.md" "$tree/LICENSE" "$stage/"
# Without the tools of its developers, and free to be published.
"$tree/scripts/node" - "$tree/package.json" "$stage/package.json" <<'JS'
const { readFileSync, writeFileSync } = require('node:fs');
const [from, to] = process.argv.slice(2);
const { private: _, scripts, devDependencies, overrides, ...all } = JSON.parse(readFileSync(from, 'utf8'));
const files = ['src', 'config', 'scripts', 'docs', 'CHANGELOG.md'];
writeFileSync(to, `${JSON.stringify({ ...all, files }, null, 2)}\n`);
JS
mkdir -p "$out"
out=$(CDPATH='' cd -- "$out" && pwd)
name=$(cd "$stage" && npm pack --silent --pack-destination "$out")
echo "$out/$name"
