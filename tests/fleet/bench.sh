#!/bin/bash
# bench/fleet on two replicas for some seconds: every turn is answered, and routing by conversation finds more in the KV caches.
# usage: bench.sh MOED MODEL SOURCE
set -eu
moed=$1 model=$2 source=$3
PATH=$PATH:/usr/sbin
command -v haproxy >/dev/null || { echo "skipped: haproxy is not installed"; exit 77; }
table=$("$source/bench/fleet/run" --bin "$(dirname "$moed")" --model "$model" --replicas 2 --seconds 5 --rate 0.8 --think 0.2 --repeat 1)
echo "$table"
# Columns: replicas, routing, turns, failed, ..., cached.
awk -F'|' '$3 ~ /aware/ { rows++; failed += $5; turns += $4; split($11, c, " "); cached[$3] = c[1] }
    END { exit !(rows == 2 && failed == 0 && turns >= 16 && cached[" aware "] > cached[" unaware "] && cached[" aware "] > 0.5) }' <<<"$table" || {
    echo "FAILED: see the table" >&2
    exit 1
}
