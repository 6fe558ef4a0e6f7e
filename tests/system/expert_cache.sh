#!/bin/bash
# Where an expert was computed never shows: the same tokens on the host and on an emulated device, for every policy, predictor and
# budget, several sizes of its memory and of segments, alone and among others, and while the policy is changed.
#   [MOED_TEST_SHORT=1] expert_cache.sh MOED MODEL...     each model by itself; SHORT: one size of memory
MOED=$1
shift
. "$(dirname "$0")/../deployment.sh"

prompts=("Once upon a time" "$(seq -s ' ' 1 60)" "int main(void) {" "0 1 2 3")
check() { # check WHAT
    ask_all 12 got
    cmp -s "$WORK/want" "$WORK/got" || { diff "$WORK/want" "$WORK/got" >&2; fail "$1: other tokens than on the host"; }
}

refused() { # refused LINE ARGUMENT...: of `moed policy`
    local line=$1
    shift
    "$MOED" policy "$@" >/dev/null 2>"$WORK/refused" && fail "policy $* is taken"
    grep -qF "$line" "$WORK/refused" || { cat "$WORK/refused" >&2; fail "policy $*: not told why"; }
}

# Chosen at the start, and kept by memd for a worker that starts later.
"$MOED" up "$1" --device emu:vram=50%,link=1G --cache lru --budget uniform --predictor frequency --prefetch urgent >/dev/null 2>&1 || fail "up with a predictor"
"$MOED" restart worker >/dev/null || fail "restart"
chosen=$("$MOED" policy --json)
for part in '"cache": "lru"' '"budget": "uniform"' '"predictor": "frequency"' '"prefetcher": "urgent"'; do
    case $chosen in *"$part"*) ;; *) fail "$part is not in $chosen" ;; esac
done
"$MOED" run -n 40 --ignore-end --temp 0 "Once upon a time" >/dev/null
[ "$(metric worker 'moed_worker_predict_shown_total')" -gt 0 ] || fail "nothing was shown to the predictor"
[ -z "$(metric worker 'moed_worker_predictions_total{predictor="residual"}')" ] || fail "a predictor that was not used has metrics"

# Prometheus is told which policy it is, and what was copied under each.
in_force() { # in_force POLICY ASSIGNER CACHE BUDGET PREDICTOR PREFETCHER
    [ "$(metric memd "moed_memd_policy_info{policy=\"$1\",assign=\"$2\",cache=\"$3\",budget=\"$4\",predictor=\"$5\",prefetch=\"$6\"}")" = 1 ]
}
copied() { metric memd "moed_memd_policy_link_bytes_total{policy=\"$1\"}"; }
in_force moed balance lru uniform frequency urgent || fail "the policy in force is not among the metrics"
"$MOED" policy ondemand >/dev/null || fail "policy ondemand"
in_force ondemand load-all none global none probable || fail "another policy is not among the metrics"
before=$(copied moed)
"$MOED" run -n 20 --ignore-end --temp 0 "Once upon a time" >/dev/null
[ "$before" -gt 0 ] && [ "$(copied ondemand)" -gt 0 ] || fail "no bytes under moed, or under ondemand"
[ "$(copied moed)" = "$before" ] || fail "bytes under a policy that is not in force"
[ $((before + $(copied ondemand))) = "$(metric memd moed_memd_link_bytes_total)" ] || fail "bytes under the two are not all"
"$MOED" down >/dev/null 2>&1
"$MOED" up "$1" --device emu:vram=50%,link=1G --budget uniform >/dev/null 2>"$WORK/refused" && fail "up with a budget that the cache does not take"
grep -qF "cache value does not take budget uniform" "$WORK/refused" || fail "up: not told why"

at_once=0 # layers computed in one call: whether that is sooner is a matter of costs, and for one model it may never be
for model in "$@"; do
    say "$(basename "$model")"
    # a share that holds one expert of the smallest models
    LEAST=15
    [ "$(stat -c %s "$model")" -gt 1000000 ] || LEAST=34
    # the cut into segments is part of the sum's definition: the same on every device
    "$MOED" up "$model" --reproducible --segment-bytes 32768 >/dev/null 2>&1
    ask_all 12 want
    ask_all 80 want-long
    "$MOED" down >/dev/null 2>&1
    devices=(emu:vram=100%,link=2G emu:vram=40%,link=500M,call=200us "emu:vram=$LEAST%,link=100M,speed=0.5")
    [ -z "${MOED_TEST_SHORT:-}" ] || devices=("${devices[1]}")
    for device in "${devices[@]}"; do
        "$MOED" up "$model" --reproducible --device "$device" --policy moed --segment-bytes 32768 >/dev/null 2>"$WORK/up" || { cat "$WORK/up" >&2; fail "$device"; }
        for policy in moed ondemand static lru lfu mixtral-offloading eam threshold score qstar layerwise dali prescope moepic promoe finemoe; do
            "$MOED" policy "$policy" >/dev/null || fail "policy $policy"
            check "$device, $policy"
        done
        for predictor in none next-gate gate-scores residual frequency expert-map activation-matrix mixture; do
            "$MOED" policy moed --predictor $predictor >/dev/null || fail "predictor $predictor"
            [ "$(policy_field predictor)" = "\"$predictor\"" ] || fail "not $predictor"
            check "$device, predictor $predictor"
        done
        for budget in global uniform; do
            "$MOED" policy qstar --budget $budget --predictor residual >/dev/null || fail "budget $budget"
            [ "$(policy_field budget)" = "\"$budget\"" ] || fail "not $budget"
            check "$device, budget $budget"
        done
        for part in "--cache lcp" "--cache workload-guarded" "--cache static --budget global" "--prefetch chunked" "--prefetch cleared" \
            "--prefetch rotating" "--prefetch urgent" "--predictor residual --prefetch loaded"; do
            # shellcheck disable=SC2086 # words
            "$MOED" policy moed $part >/dev/null || fail "policy moed $part"
            check "$device, $part"
        done
        # while an answer is under way
        ask_all 80 got-long & asking=$!
        for change in lru "lru --budget global --predictor next-gate" "dali --predictor none" dali "--predictor frequency" \
            "--cache lru --budget uniform" ondemand moed "--predictor next-gate" "--predictor mixture" "--predictor expert-map" "--predictor residual"; do
            sleep 0.05
            # shellcheck disable=SC2086 # words
            "$MOED" policy $change >/dev/null || fail "policy $change"
        done
        wait $asking || fail "answers while the policy changes"
        cmp -s "$WORK/want-long" "$WORK/got-long" || fail "$device: other tokens while the policy changes"
        case $device in *call=*) at_once=$((at_once + $(metric worker moed_worker_layers_at_once_total))) ;; esac
        slots_add_up || fail "$device: slots do not add up"
        "$MOED" policy | sed -n 's/^computed */  /p'
        refused "cache value does not take budget uniform; those that do are none, static, lru, lfu, workload, lru-ahead, lcp, score, workload-guarded" --budget uniform
        refused "cache lfu does not take budget global; those that do are none, static, lru, layerwise, map-frequency, value" lfu --budget global
        refused "there are load-all, threshold, qstar, greedy, layerwise, presched, score-queue, balance" --assign chance
        refused "there are none, static, lru, lfu, workload, workload-guarded, layerwise, lru-ahead, lcp, score, map-frequency, value" --cache fifo
        refused "cache 'belady' is not known" --cache belady
        refused "there are none, next-gate, gate-scores, residual, frequency, expert-map, activation-matrix, mlp, llapor, mixture" --predictor oracle
        refused "moed train" --predictor mlp
        refused "there are probable, chunked, rotating, urgent, cleared, loaded, value" --prefetch random
        refused "there are global, uniform, configured" --budget fair
        [ "$(policy_field cache)" = '"value"' ] || fail "a refused policy changed something"
        "$MOED" down >/dev/null 2>&1
        say "  ok: $device"
    done
done
say "$at_once layers were computed in one call when their load was there"
[ $# -lt 5 ] || [ "$at_once" -gt 0 ] || fail "of $# models no layer was computed in one call"
