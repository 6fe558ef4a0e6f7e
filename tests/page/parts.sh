#!/bin/bash
# The page's modules by node, without a browser. usage: parts.sh
set -eu
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
major=$(node --version 2> /dev/null | sed 's/^v\([0-9]*\).*/\1/')
[ "${major:-0}" -ge 18 ] || { echo "skipped: node 18 is not here (found: ${major:-none})" >&2; exit 77; }
exec node --test "$here/markdown.test.mjs" "$here/parts.test.mjs"
