#!/bin/bash
# What a second worker costs in throughput: one worker with N threads, and two workers that share them, on one memd. Both in turn, so that
# other work on the machine meets both; medians of the ratios of pairs.
#   workers.sh BUILD MODEL [-r ROUNDS] [-n TOKENS] [-s STREAMS,...] [-t THREADS] [-o "OPTIONS"]
# -s: answers at once, of all workers together. -o: further options of `moed up`, such as --speculate off.
# Processor time is that of the workers: on a loaded machine tokens a second of processor time say more than tokens a second.
# A worker reads an expert's weights once for all of its own answers, so two workers read more a token: the columns "MB". Where half of the
# number of answers was measured too, "same batches" compares two workers with one that has half of the answers.
set -eu
BUILD=$1 MODEL=$2
shift 2
ROUNDS=7 TOKENS=128 STREAMS=1,2,4,8 THREADS=2 OPTIONS="--speculate off"
while getopts r:n:s:t:o: option; do
    case $option in
    r) ROUNDS=$OPTARG ;; n) TOKENS=$OPTARG ;; s) STREAMS=$OPTARG ;; t) THREADS=$OPTARG ;; o) OPTIONS=$OPTARG ;;
    *) exit 2 ;;
    esac
done
. "$(dirname "$0")/figures.sh"
MOED=$BUILD/client/moed NAME=bench-workers-$$
WORK=$(mktemp -d)
unset MOED_RUN
trap '"$MOED" down --name $NAME >/dev/null 2>&1 || true; "$MOED" rm $NAME >/dev/null 2>&1 || true; rm -rf "$WORK"' EXIT

# state: processor ticks, generated tokens and experts' bytes of all workers since their start.
state() {
    local name pid
    "$MOED" workers --name $NAME | awk 'NR > 1 { print $1, $2 }' | while read -r name pid; do
        sed 's/.*) //' "/proc/$pid/stat" | awk '{ printf "%d ", $12 + $13 }'
        "$MOED" metrics "$name" --name $NAME | awk '$1 == "moed_worker_generated_tokens_total" { t = $2 }
            $1 == "moed_worker_expert_weight_bytes_total" { b = $2 } END { printf "%.0f %.0f\n", t, b }'
    done | awk '{ c += $1; t += $2; b += $3 } END { printf "%.0f %.0f %.0f\n", c, t, b }'
}
# measure WORKERS STREAMS FILE: appends tokens a second, tokens a second of processor time, and MB a token.
measure() {
    local before after
    before=$(state)
    "$BUILD/bench/moed-bench" --name $NAME --prompt-tokens 1 --generate "$TOKENS" --parallel "$2" --runs 1 --json >"$WORK/json"
    after=$(state)
    python3 - "$WORK/json" "$before" "$after" "$(getconf CLK_TCK)" >>"$3" <<'END'
import json, sys
before, after = ([float(x) for x in s.split()] for s in sys.argv[2:4])
ticks, tokens, read = (b - a for a, b in zip(before, after))
speed = json.load(open(sys.argv[1]))["rows"][0]["decode_tokens_per_s"]["median"]
print(speed, tokens / (ticks / float(sys.argv[4])), read / tokens / 1e6)
END
}
# column FILE N: the median of a column. ratios N S S1: of two workers with S answers over one with S1, by pairs.
column() { awk -v n="$2" '{ print $n }' "$1" | median; }
ratios() { paste "$WORK/2-$2" "$WORK/1-$3" | awk -v n="$1" '{ print $n / $(n + 3) }'; }
quartiles() { sort -g | awk '{ v[NR] = $1 } END { printf "%.2f (%.2f to %.2f)", (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2, v[int((NR + 3) / 4)], v[int((3 * NR + 1) / 4)] }'; }

# shellcheck disable=SC2086 # options
"$MOED" up "$MODEL" --name $NAME --device host --workers 2 --threads "$THREADS" --ctx $((2 * TOKENS + 64)) --parallel 32 $OPTIONS >/dev/null
for ((round = 0; round < ROUNDS; round++)); do
    # The second round begins with what the first one ended with.
    for workers in $((1 + round % 2)) $((2 - round % 2)); do
        "$MOED" workers $workers --name $NAME >/dev/null 2>"$WORK/log" || { cat "$WORK/log" >&2; exit 1; }
        for s in ${STREAMS//,/ }; do measure $workers "$s" "$WORK/$workers-$s"; done
    done
done
echo "$(basename "$MODEL"), $TOKENS tokens, $THREADS threads, medians of $ROUNDS pairs (of ratios: median, quartiles)"
echo "| answers at once | one worker, tokens/s | two, sum | two / one | by processor time | same batches, by processor time | MB of experts a token: one | two |"
echo "|---:|---:|---:|---:|---:|---:|---:|---:|"
for s in ${STREAMS//,/ }; do
    same=
    [ ! -e "$WORK/1-$((s / 2))" ] || same=$(ratios 2 "$s" $((s / 2)) | quartiles)
    printf '| %d | %.0f | %.0f | %s | %s | %s | %.2f | %.2f |\n' "$s" "$(column "$WORK/1-$s" 1)" "$(column "$WORK/2-$s" 1)" \
        "$(ratios 1 "$s" "$s" | quartiles)" "$(ratios 2 "$s" "$s" | quartiles)" "$same" "$(column "$WORK/1-$s" 3)" "$(column "$WORK/2-$s" 3)"
done
