#!/usr/bin/env bash
# Compiles src/base/wasm/byte-passes.ts. With --check: whether the module in the tree is what that file makes.
set -euo pipefail
cd "$(dirname "$0")/.."
target=src/base/wasm/byte-passes.wasm
made=$(mktemp)
trap 'rm -f "$made"' EXIT
npx --yes --package=assemblyscript@0.28.20 asc src/base/wasm/byte-passes.ts --outFile "$made" \
  -O3 --runtime stub --enable simd --noAssert --importMemory
if [ "${1:-}" = --check ]; then
  cmp "$made" "$target"
else
  cp "$made" "$target"
  chmod 644 "$target"
fi
