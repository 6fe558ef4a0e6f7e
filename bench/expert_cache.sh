#!/bin/bash
# The table of docs/expert-cache.md: decode speed and where segments were computed, for each policy, share of the experts that
# fits the device, and number of requests at once.
#   expert_cache.sh MOED MODEL [-l LINK] [-r RUNS] [-n TOKENS] [-b "1 4"] [-v "10 25 50"] [-s SEGMENT_BYTES] [-p "POLICIES"]
# Policies take turns within a run, each after a warm-up of its own; medians over the runs, with the spread.
set -eu
MOED=$1 MODEL=$2
shift 2
LINK=2G RUNS=5 TOKENS=64 BATCHES="1 4" SHARES="10 25 50" SEGMENT=0
POLICIES="moed dali qstar threshold lru lfu static layerwise ondemand"
while getopts l:r:n:b:v:s:p: option; do
    case $option in
    l) LINK=$OPTARG ;; r) RUNS=$OPTARG ;; n) TOKENS=$OPTARG ;; b) BATCHES=$OPTARG ;;
    v) SHARES=$OPTARG ;; s) SEGMENT=$OPTARG ;; p) POLICIES=$OPTARG ;;
    *) exit 2 ;;
    esac
done
WORK=$(mktemp -d)
export MOED_RUN=$WORK/run
trap '"$MOED" down >/dev/null 2>&1 || true; rm -rf "$WORK"' EXIT
prompts=("The weather in the mountains" "How do I list files in a directory?" "What is 7 plus 5?" "Once upon a time there was a")

field() { tr '{,}' '\n' < "$1" | sed -n "s/^ *\"$2\": *//p" | head -1; }
# all FILE N: N requests at once, TOKENS each; tokens a second of all together
all() {
    local start end i pids=()
    start=$(date +%s%N)
    for ((i = 0; i < $1; i++)); do
        "$MOED" run -n "$TOKENS" --ignore-end --temp 0 --json "${prompts[$((i % 4))]}" > "$WORK/a-$i" & pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i"; done
    end=$(date +%s%N)
    if [ "$1" -eq 1 ]; then
        awk -v n="$TOKENS" -v s="$(field "$WORK/a-0" decode_s)" 'BEGIN { printf "%.2f\n", (n - 1) / s }'
    else
        awk -v n=$(($1 * TOKENS)) -v ns=$((end - start)) 'BEGIN { printf "%.2f\n", n * 1e9 / ns }'
    fi
}
shares() { # shares BEFORE AFTER: percent resident, loaded, CPU between two states
    for f in segments_resident segments_loaded segments_cpu; do echo $(($(field "$2" $f) - $(field "$1" $f))); done |
        awk '{ v[NR] = $1; s += $1 } END { if (!s) s = 1; printf "%.0f / %.0f / %.0f", 100 * v[1] / s, 100 * v[2] / s, 100 * v[3] / s }'
}
median() { sort -g "$1" | awk '{ v[NR] = $1 } END { m = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2; printf "%.1f (%.1f-%.1f)", m, v[1], v[NR] }'; }

segments=()
[ "$SEGMENT" = 0 ] || segments=(--segment-bytes "$SEGMENT")
echo "| fits | at once | policy | tokens/s, median (least-most) | % resident / loaded / CPU |"
echo "|---|---|---|---|---|"
"$MOED" up "$MODEL" "${segments[@]}" --parallel 16 > /dev/null 2>&1
for batch in $BATCHES; do
    all "$batch" > /dev/null
    : > "$WORK/host"
    for ((run = 0; run < RUNS; run++)); do all "$batch" >> "$WORK/host"; done
    echo "| host | $batch | | $(median "$WORK/host") | 0 / 0 / 100 |"
done
"$MOED" down > /dev/null 2>&1
for share in $SHARES; do
    "$MOED" up "$MODEL" "${segments[@]}" --parallel 16 --device "emu:vram=$share%,link=$LINK" > /dev/null 2>&1
    for batch in $BATCHES; do
        for policy in $POLICIES; do : > "$WORK/$policy.speed"; done
        for ((run = 0; run < RUNS; run++)); do
            for policy in $POLICIES; do
                "$MOED" policy "$policy" > /dev/null
                all "$batch" > /dev/null
                "$MOED" policy --json > "$WORK/before"
                all "$batch" >> "$WORK/$policy.speed"
                "$MOED" policy --json > "$WORK/after"
                shares "$WORK/before" "$WORK/after" > "$WORK/$policy.shares"
            done
        done
        for policy in $POLICIES; do
            echo "| $share % | $batch | $policy | $(median "$WORK/$policy.speed") | $(cat "$WORK/$policy.shares") |"
        done
    done
    "$MOED" down > /dev/null 2>&1
done
