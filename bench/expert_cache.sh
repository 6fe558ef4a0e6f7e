#!/bin/bash
# Prints the table of bench/results/expert-cache.md: decode speed, where segments were computed and the bound, for each policy, share
# of the experts that fits the emulated device, and number of requests at once.
#   expert_cache.sh MOED MODEL [-l LINK] [-r RUNS] [-n TOKENS] [-b "1 4 16"] [-v "10 25 50 100"] [-s SEGMENT_BYTES] [-p "POLICIES"]
# Policies take turns within a run, each after its own warm-up, with other prompts than those measured. The table has medians over the
# runs, with the spread. `host` has as many threads as device and CPU have each. TOKENS is 64 without -n; fewer measure how a cache
# begins. decode_figures.sh defines the bound; DRAM=BYTES/S is the memory's read rate (moed-bench measures it).
set -eu
MOED=$1 MODEL=$2
shift 2
LINK=2G RUNS=5 TOKENS=64 BATCHES="1 4 16" SHARES="10 25 50 100" SEGMENT=0
POLICIES="moed dali qstar threshold lru lfu static layerwise ondemand"
while getopts l:r:n:b:v:s:p: option; do
    case $option in
    l) LINK=$OPTARG ;; r) RUNS=$OPTARG ;; n) TOKENS=$OPTARG ;; b) BATCHES=$OPTARG ;;
    v) SHARES=$OPTARG ;; s) SEGMENT=$OPTARG ;; p) POLICIES=$OPTARG ;;
    *) exit 2 ;;
    esac
done
. "$(dirname "$0")/decode_figures.sh"
WORK=$(mktemp -d)
export MOED_RUN=$WORK/run
trap '"$MOED" down >/dev/null 2>&1 || true; rm -rf "$WORK"' EXIT
# short, because a prompt's step counts as a decode step
prompts=(The How What Once When In A She His From There Where If My Two All)
others=(Why It Who Some He Now They Our At You For One We But By So)
half=$(($(nproc) / 2))
[ $half -gt 0 ] || half=1

up() { "$MOED" up "$MODEL" --speculate off "${segments[@]}" --parallel 16 "$@" >/dev/null 2>"$WORK/up" || { cat "$WORK/up" >&2; exit 1; }; }
# all N PROMPT...: runs N requests at once, TOKENS each
all() {
    local i n=$1 pids=()
    shift
    for ((i = 0; i < n; i++)); do
        "$MOED" run -n "$TOKENS" --ignore-end --temp 0 "${@:$((i % $# + 1)):1}" >"$WORK/answer-$i" & pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i"; done
}
segments=()
[ "$SEGMENT" = 0 ] || segments=(--segment-bytes "$SEGMENT")
bound_is emu
echo
echo "| fits | at once | policy | tokens/s, median (least-most) | ms a step | bound, ms | step / bound | % resident / loaded / CPU |"
echo "|---|---|---|---|---|---|---|---|"
for share in host $SHARES; do
    policies=$POLICIES
    if [ "$share" = host ]; then
        up --threads "$half"
        policies=-
    else
        up --device "emu:vram=$share%,link=$LINK"
        costs >"$WORK/costs"
        snapshot >"$WORK/before"
        all 1 "${others[@]}"
        snapshot >"$WORK/after"
        read -r layers activated < <(shape "$WORK/before" "$WORK/after")
    fi
    for batch in $BATCHES; do
        rm -f "$WORK"/*.figures
        for ((run = 0; run < RUNS; run++)); do
            for policy in $policies; do
                [ "$share" = host ] || "$MOED" policy "$policy" >/dev/null
                all "$batch" "${others[@]}"
                snapshot >"$WORK/before"
                all "$batch" "${prompts[@]}"
                snapshot >"$WORK/after"
                if [ "$share" = host ]; then
                    join <(sort "$WORK/before") <(sort "$WORK/after") | awk -v batch="$batch" '{ d[$1] = $3 - $2 } END {
                        printf "%.3f %.4f\n", (d["generated_tokens_total"] - batch) / d["decode_seconds_total"],
                            1e3 * d["decode_seconds_total"] / d["decode_steps_total"] }'
                else
                    figures "$WORK/before" "$WORK/after" "$WORK/costs" "$batch" "$layers" "$activated"
                fi >>"$WORK/$policy.figures"
            done
        done
        for policy in $policies; do
            f=$WORK/$policy.figures
            row="$(median "$f" 1) ($(spread "$f" 1)) | $(median "$f" 2)"
            if [ "$share" = host ]; then
                echo "| host | $batch | | $row | | | |"
            else
                echo "| $share % | $batch | $policy | $row | $(median "$f" 3) | $(step_by_bound "$f") | $(tail -n 1 "$f" | cut -d ' ' -f 4-6 | sed 's/ / \/ /g') |"
            fi
        done
    done
    "$MOED" down >/dev/null 2>&1
done
