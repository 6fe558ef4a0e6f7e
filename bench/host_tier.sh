#!/bin/bash
# Prints the table of bench/results/host-tier.md: decode speed by the share of the model that host memory may hold, the disk's rate
# at that time, and a plain direct read of the same file.
#   host_tier.sh MOED MODEL [-r RUNS] [-n TOKENS] [-s "100 75 50 25"] [-d DEVICE]
# Sizes take turns. Each run is a deployment of its own, warmed up by one answer. The table has medians over the runs, with the spread.
set -eu
MOED=$1 MODEL=$2
shift 2
RUNS=3 TOKENS=64 SIZES="100 75 50 25" DEVICE=host
while getopts r:n:s:d: option; do
    case $option in
    r) RUNS=$OPTARG ;; n) TOKENS=$OPTARG ;; s) SIZES=$OPTARG ;; d) DEVICE=$OPTARG ;;
    *) exit 2 ;;
    esac
done
WORK=$(mktemp -d)
export MOED_RUN=$WORK/run
trap '"$MOED" down >/dev/null 2>&1 || true; rm -rf "$WORK"' EXIT

field() { tr '{,}' '\n' < "$1" | sed -n "s/^ *\"$2\": *//p" | head -1; }
answer() { "$MOED" run -n "$TOKENS" --ignore-end --temp 0 --json "The weather in the mountains" > "$WORK/answer"; }
plain_read() { # GB/s of reading the whole file past the page cache
    LC_ALL=C dd if="$MODEL" of=/dev/null bs=4M iflag=direct 2>&1 |
        awk '/copied/ { for (i = 1; i <= NF; i++) if ($i == "s,") s = $(i - 1); printf "%.2f\n", $1 / s / 1e9 }'
}
growth() { echo "$(field "$WORK/after" "$1") $(field "$WORK/before" "$1")" | awk '{ print $1 - $2 }'; }
run() { # run SIZE: appends its figures
    "$MOED" up "$MODEL" --speculate off --ram "$1%" --device "$DEVICE" > /dev/null 2>&1
    answer
    "$MOED" policy --json > "$WORK/before"
    answer
    "$MOED" policy --json > "$WORK/after"
    awk -v n="$TOKENS" -v s="$(field "$WORK/answer" decode_s)" 'BEGIN { printf "%.2f\n", (n - 1) / s }' >> "$WORK/$1.speed"
    if grep -q memory_slots "$WORK/after"; then
        echo "$(growth experts_in_memory) $(growth experts_on_disk)" | awk '{ print 100 * $1 / ($1 + $2) }' >> "$WORK/$1.hits"
        echo "$(growth disk_read_bytes) $(growth disk_busy_s)" | awk '{ print $1 / $2 / 1e9 }' >> "$WORK/$1.disk"
        echo "$(growth decode_disk_wait_s) $(growth decode_s)" | awk '{ print 100 * $1 / $2 }' >> "$WORK/$1.wait"
    fi
    "$MOED" down > /dev/null 2>&1
}
median() { # median FORMAT FILE
    [ -s "$2" ] || return 0
    sort -g "$2" | awk -v f="$1" '{ v[NR] = $1 } END {
        m = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2; printf f " (" f "-" f ")", m, v[1], v[NR] }'
}

for ((i = 0; i < RUNS; i++)); do
    for size in $SIZES; do run "$size"; done
    plain_read >> "$WORK/plain"
done
echo "| --ram | tokens/s, median (least-most) | % of activated experts in memory | disk GB/s while busy | % of decode time waited |"
echo "|---|---|---|---|---|"
for size in $SIZES; do
    echo "| $size % | $(median %.1f "$WORK/$size.speed") | $(median %.0f "$WORK/$size.hits") | $(median %.2f "$WORK/$size.disk") | $(median %.0f "$WORK/$size.wait") |"
done
echo
echo "dd iflag=direct bs=4M of the same file, between the runs: $(median %.2f "$WORK/plain") GB/s"
