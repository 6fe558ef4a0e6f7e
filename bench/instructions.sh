#!/bin/bash
# Prints instructions for each byte of weights, as a Markdown table: a product with one token and with eight, by the portable and the
# AVX2 build. valgrind (callgrind) counts them, exactly and alike on every machine. It does not know AVX-512.
#   instructions.sh BUILD
set -eu
BUILD=$1
command -v valgrind > /dev/null || { echo "instructions.sh: valgrind is not installed" >&2; exit 1; }
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

count() { # count KERNELS: lines "TYPE TOKENS RATIO"
    valgrind --tool=callgrind --toggle-collect=measured --dump-after=measured --callgrind-out-file="$WORK/$1.out" \
        "$BUILD/bench/bench-instructions" "$1" > "$WORK/$1" 2> "$WORK/$1.err" ||
        { echo "instructions.sh: $(tail -n 1 "$WORK/$1.err")" >&2; exit 1; }
    for i in $(seq "$(wc -l < "$WORK/$1")"); do # one file of counts a call
        sed -n 's/^\(totals\|summary\): *//p' "$WORK/$1.out.$i" | head -n 1
    done | paste -d ' ' "$WORK/$1" - | awk '{ print $1, $2, $4 / $3 }'
}

count portable > "$WORK/portable.ratios"
count avx2 > "$WORK/avx2.ratios"
echo "| type | portable, one token | 8 tokens | AVX2, one token | 8 tokens |"
echo "|---|---:|---:|---:|---:|"
paste -d ' ' "$WORK/portable.ratios" "$WORK/avx2.ratios" | awk '
    $2 == 1 { p = $3; a = $6 }
    $2 != 1 { printf "| %s | %.1f | %.1f | %.3f | %.2f |\n", $1, p, $3, a, $6 }'
