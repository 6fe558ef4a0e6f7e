#!/bin/bash
# Checks that docs/memory-map.md gives each shared region the version that its header has, and the pool's header its size.
# usage: layouts.sh ROOT
set -eu
cd "${1:?usage: layouts.sh ROOT}"
page=docs/memory-map.md
# HEADER VERSION of each row of the table.
in_docs() { sed -nE 's/^\|.*\| `(lib[^`]*\.h)` \| ([0-9]+) \|$/\1 \2/p' $page | sort; }
in_sources() {
    in_docs | while read -r header _; do
        sed -nE "s|^#define [A-Z_]+_VERSION +([0-9]+)u?\$|$header \1|p" "$header"
    done
}
[ "$(in_docs | wc -l)" -ge 8 ] || { echo "found only $(in_docs | wc -l) versions in $page" >&2; exit 1; }
diff <(in_docs) <(in_sources) >&2 || { echo "$page (<) has other versions than the headers (>)" >&2; exit 1; }
bytes=$(sed -nE 's/.*sizeof\(struct pool_header\) == ([0-9]+).*/\1/p' lib/model/pool_map.h)
grep -q "struct pool_header\`, $bytes bytes" $page || { echo "$page: struct pool_header has ${bytes:-an unknown number of} bytes" >&2; exit 1; }
