#!/bin/sh
# After `npm ci`: links node_modules/.bin/node, where npm's scripts and the programs of packages look for their Node. npm 11 makes this link;
# npm 9 and 10 do not, because two packages (x64 and arm64) name it and they try only the one that is not installed.
set -eu
cd -- "$(dirname -- "$0")/.."
scripts/node --version >/dev/null
for arch in x64 arm64; do
  if [ -x "node_modules/node-linux-$arch/bin/node" ] && [ ! -e node_modules/.bin/node ]; then
    mkdir -p node_modules/.bin
    ln -sf "../node-linux-$arch/bin/node" node_modules/.bin/node
  fi
done
