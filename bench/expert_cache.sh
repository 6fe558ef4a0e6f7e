#!/bin/bash
# The table of docs/expert-cache.md: decode speed, where segments were computed and the bound, for each policy, share of the
# experts that fits the device, and number of requests at once.
#   expert_cache.sh MOED MODEL [-l LINK] [-r RUNS] [-n TOKENS] [-b "1 4 16"] [-v "10 25 50 100"] [-s SEGMENT_BYTES] [-p "POLICIES"]
# Policies take turns within a run, each after a warm-up of its own; medians over the runs, with the spread. `host` runs with
# as many threads as device and CPU have each.
#
# The bound of a step: its time outside of the experts, and resident segments x their time + the larger of CPU segments x their
# time and loads x theirs, all as calibrated, each alone.
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
WORK=$(mktemp -d)
export MOED_RUN=$WORK/run
trap '"$MOED" down >/dev/null 2>&1 || true; rm -rf "$WORK"' EXIT
prompts=("The" "How" "What" "Once") # short: a prompt's step counts as one of decoding
half=$(($(nproc) / 2))
[ $half -gt 0 ] || half=1

up() { "$MOED" up "$MODEL" "${segments[@]}" --parallel 16 "$@" >/dev/null 2>"$WORK/up" || { cat "$WORK/up" >&2; exit 1; }; }
# all N: N requests at once, TOKENS each
all() {
    local i pids=()
    for ((i = 0; i < $1; i++)); do
        "$MOED" run -n "$TOKENS" --ignore-end --temp 0 "${prompts[$((i % 4))]}" >"$WORK/answer-$i" & pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i"; done
}
# The worker's counters, and the calibration's lines, as NAME VALUE.
snapshot() {
    "$MOED" metrics worker | sed -n 's/^moed_worker_\(decode_seconds_total\|decode_steps_total\|generated_tokens_total\|layer_seconds_total\|layers_total\|segments_total{where="\([a-z]*\)"}\) /\1 /p' |
        sed 's/segments_total{where="\([a-z]*\)"}/\1/'
}
costs() {
    "$MOED" inspect --calibration --json | tr ',{' '\n\n' | sed 's/[" ]//g' | awk -F: '
        $1 == "base_s" { print (n++ ? "cpu_s" : "device_s"), $2 }
        $1 == "token_s" { print (n > 1 ? "cpu_token_s" : "device_token_s"), $2 }
        $1 == "link_segment_s" { print "link_s", $2 }'
}
# figures BEFORE AFTER COSTS BATCH: tokens a second, ms a step, its bound, % resident, loaded, CPU
figures() {
    join <(sort "$1") <(sort "$2") | awk -v batch="$4" -v costs="$3" '
        BEGIN { while ((getline line < costs) > 0) { split(line, f, " "); c[f[1]] = f[2] } }
        { d[$1] = $3 - $2 }
        END {
            steps = d["decode_steps_total"]; s = d["resident"] + d["loaded"] + d["cpu"]
            step = d["decode_seconds_total"] / steps
            passes = d["layers_total"] / layers # prompts too
            other = step - d["layer_seconds_total"] / passes
            w = s ? batch * activated / (s / passes) : 1 # tokens of a segment, on average
            device = d["resident"] * (c["device_s"] + w * c["device_token_s"]) / passes
            cpu = d["cpu"] * (c["cpu_s"] + w * c["cpu_token_s"]) / passes
            link = d["loaded"] * c["link_s"] / passes
            # the first token of a request comes from the pass over its prompt, which is not in the time
            printf "%.3f %.4f %.4f", (d["generated_tokens_total"] - batch) / d["decode_seconds_total"], step * 1e3, (other + device + (cpu > link ? cpu : link)) * 1e3
            if (s) printf " %.0f %.0f %.0f", 100 * d["resident"] / s, 100 * d["loaded"] / s, 100 * d["cpu"] / s
            printf "\n"
        }' layers="$layers" activated="$activated" -
}
median() { cut -d ' ' -f "$2" "$1" | sort -g | awk '{ v[NR] = $1 } END { printf "%.2f", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
spread() { cut -d ' ' -f "$2" "$1" | sort -g | awk 'NR == 1 { a = $1 } END { printf "%.1f-%.1f", a, $1 }'; }

segments=()
[ "$SEGMENT" = 0 ] || segments=(--segment-bytes "$SEGMENT")
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
        all 1
        snapshot >"$WORK/after"
        # of one token: layers with experts, and segments that they activate
        read -r layers activated < <(join <(sort "$WORK/before") <(sort "$WORK/after") | awk '{ d[$1] = $3 - $2 } END {
            layers = int(d["layers_total"] / (d["decode_steps_total"] + 1) + 0.5)
            print layers, (d["resident"] + d["loaded"] + d["cpu"]) * layers / d["layers_total"] }')
    fi
    for batch in $BATCHES; do
        rm -f "$WORK"/*.figures
        for ((run = 0; run < RUNS; run++)); do
            for policy in $policies; do
                [ "$share" = host ] || "$MOED" policy "$policy" >/dev/null
                all "$batch"
                snapshot >"$WORK/before"
                all "$batch"
                snapshot >"$WORK/after"
                if [ "$share" = host ]; then
                    join <(sort "$WORK/before") <(sort "$WORK/after") | awk -v batch="$batch" '{ d[$1] = $3 - $2 } END {
                        printf "%.3f %.4f\n", (d["generated_tokens_total"] - batch) / d["decode_seconds_total"],
                            1e3 * d["decode_seconds_total"] / d["decode_steps_total"] }'
                else
                    figures "$WORK/before" "$WORK/after" "$WORK/costs" "$batch"
                fi >>"$WORK/$policy.figures"
            done
        done
        for policy in $policies; do
            f=$WORK/$policy.figures
            row="$(median "$f" 1) ($(spread "$f" 1)) | $(median "$f" 2)"
            if [ "$share" = host ]; then
                echo "| host | $batch | | $row | | | |"
            else
                echo "| $share % | $batch | $policy | $row | $(median "$f" 3) | $(awk '{ print $2 / $3 }' "$f" | sort -g |
                    awk '{ v[NR] = $1 } END { printf "%.2f", v[int((NR + 1) / 2)] }') | $(tail -n 1 "$f" | cut -d ' ' -f 4-6 | sed 's/ / \/ /g') |"
            fi
        done
    done
    "$MOED" down >/dev/null 2>&1
done
