#!/bin/bash
# Prints a table of bench/results/deciding.md: what prediction takes of a decode step, live, on an emulated device: all of it in the
# engine's thread, and the exposed part (in layers in which the engine waited for no process afterwards).
#   prediction.sh MOED MODEL [-d DEVICE] [-n TOKENS] [-r RUNS] [-l PREDICTORS_FILE] [-p "PREDICTOR..."]
# One deployment. Predictors take turns under the policy moed, each answer after a short one that warms it up. The table has medians
# over the runs, less what `none` shows (the clock itself). The step is the fastest mean of any answer, so no share is larger elsewhere.
# mlp and llapor need PREDICTORS_FILE, which `moed train` writes. The script leaves out a predictor that is refused.
set -eu
MOED=$1 MODEL=$2
shift 2
DEVICE=emu:vram=25%,link=4G TOKENS=160 RUNS=3 TRAINED=()
PREDICTORS="none next-gate residual frequency expert-map activation-matrix mlp llapor mixture"
while getopts d:n:r:l:p: option; do
    case $option in
    d) DEVICE=$OPTARG ;; n) TOKENS=$OPTARG ;; r) RUNS=$OPTARG ;; l) TRAINED=(--predictors "$OPTARG") ;;
    p) PREDICTORS="none $OPTARG" ;;
    *) exit 2 ;;
    esac
done
WORK=$(mktemp -d)
export MOED_RUN=$WORK/run
trap '"$MOED" down >/dev/null 2>&1 || true; rm -rf "$WORK"' EXIT

figures() { # of the worker since its start: seconds in the thread, layers timed, exposed seconds, seconds between tokens, steps
    "$MOED" metrics worker | awk '
        /^moed_worker_predict_seconds_sum/ { took = $2 } /^moed_worker_predict_seconds_count/ { n = $2 }
        /^moed_worker_predict_exposed_seconds_total/ { exposed = $2 }
        /^moed_worker_inter_token_seconds_sum/ { step = $2 } /^moed_worker_inter_token_seconds_count/ { steps = $2 }
        END { print took, n, exposed, step, steps }'
}
layers() { "$MOED" policy --json | sed -n 's/.*"layers": \([0-9]*\).*/\1/p'; }
answer() { "$MOED" run -n "$1" --ignore-end --temp 1 --min-p 0 "$2" >/dev/null; }
median() { sort -g "$1" | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

"$MOED" up "$MODEL" --speculate off --device "$DEVICE" --policy moed "${TRAINED[@]}" >"$WORK/log" 2>&1 || { cat "$WORK/log" >&2; exit 1; }
for ((run = 1; run <= RUNS; run++)); do
    for p in $PREDICTORS; do
        "$MOED" policy moed --predictor "$p" >/dev/null 2>&1 || continue
        answer 32 "Once upon a time"
        read -r took n exposed step steps <<<"$(figures)"
        before=$(layers)
        answer "$TOKENS" "Tell me of $run and $p"
        after=$(layers)
        read -r took2 n2 exposed2 step2 steps2 <<<"$(figures)"
        # microseconds a layer; the step's seconds and layers
        awk -v t="$took2 $took" -v e="$exposed2 $exposed" -v n="$((n2 - n))" -v s="$step2 $step" -v k="$((steps2 - steps))" \
            -v l="$((after - before))" -v w="$WORK/$p" 'BEGIN { split(t, T); split(e, E); split(s, S); if (n > 0 && k > 0) {
            print 1e6 * (T[1] - T[2]) / n >> w ".took"; print 1e6 * (E[1] - E[2]) / n >> w ".exposed"
            print (S[1] - S[2]) / k >> w ".step"; print l / k >> w ".layers" } }'
    done
done
step=$(cat "$WORK"/*.step | sort -g | head -1) layers=$(median "$WORK/none.layers")
echo "| predictor | in the engine's thread, us a layer | of the step | exposed, us a layer | of the step |"
echo "|---|---|---|---|---|"
for p in $PREDICTORS; do
    if [ "$p" = none ] || [ ! -s "$WORK/$p.took" ]; then continue; fi
    awk -v p="$p" -v t="$(median "$WORK/$p.took")" -v t0="$(median "$WORK/none.took")" -v e="$(median "$WORK/$p.exposed")" \
        -v e0="$(median "$WORK/none.exposed")" -v s="$step" -v l="$layers" 'function above(x) { return x > 0 ? x : 0 } BEGIN {
        t = above(t - t0); e = above(e - e0)
        printf "| `%s` | %.1f | %.1f %% | %.1f | %.1f %% |\n", p, t, t * l / s * 1e-4, e, e * l / s * 1e-4 }'
done
echo
awk -v s="$step" -v l="$layers" 'BEGIN { printf "The step: %.2f ms, %.0f layers.\n", s * 1e3, l }'
