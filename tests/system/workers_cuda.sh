#!/bin/bash
# Several CUDA devices (tests/cusim with two), and several workers on one: each device has an arena of its own, the host memory is
# pinned once for all, and every worker has the tokens of the host.
#   workers_cuda.sh MOED MODEL MODULE
MOED=$1 MODEL=$2 MODULE=$3
. "$(dirname "$0")/../deployment.sh"
[ -e "$MODULE" ] || skip "$MODULE is not here"
export MOED_CUDA_MODULE=$MODULE MOED_CUSIM_DEVICES=2 MOED_DEVICE_POISON=1
prompts=("Once upon a time" "int main(void) {" "0 1 2 3" "$(seq -s ' ' 1 40)")
N=8
up() {
    logged=$(cat "$RUN/memd.log" 2> /dev/null | wc -l)
    start_deployment "$MODEL" --ctx 256 --parallel 2 --reproducible --segment-bytes 32768 "$@"
}
check() {
    ask_all $N got
    cmp -s "$WORK/want" "$WORK/got" || fail "$1: other tokens than on the host"
    slots_add_up || fail "$1: slots are lost: $("$MOED" policy --json)"
}
segments() { "$MOED" metrics "$1" | awk '/^moed_worker_segments_total/ && !/where="cpu"/ { n += $2 } END { printf "%d", n }'; }
# lines WORD: how many lines of memd's log since its start have the word.
lines() { tail -n +$((logged + 1)) "$RUN/memd.log" | grep -c "$1"; }
both_computed() { [ "$(segments worker)" -gt 0 ] && [ "$(segments worker-2)" -gt 0 ]; }
# Known prompts go to the worker that has them. If that is the first one for all, the second gets new ones.
expect_both() {
    local i
    for i in {1..30}; do
        both_computed && return
        local prompts=("$i and one" "$i and two" "$i and three" "$i and four")
        ask_all 4 other
    done
    fail "$1: a worker computed nothing on its device: $("$MOED" workers)"
}

up
ask_all $N want
"$MOED" down > /dev/null

# -- two devices: a worker each
up --device cuda:0,1,vram=30%
[ "$("$MOED" ps | grep -c 'worker.* ready')" = 2 ] || fail "not a worker for each device: $("$MOED" ps)"
grep -q 'device 0 of' "$RUN/worker.log" && grep -q 'device 1 of' "$RUN/worker-2.log" || fail "the workers are not on different devices"
for policy in moed dali ondemand lru; do # the last one loads all that it computes, and keeps it
    "$MOED" policy $policy > /dev/null && check "two devices, $policy"
    [ $policy != lru ] || share=$("$MOED" top --once --json | tr ',{}' '\n' | sed -n 's/.*"experts_on_device_share": *//p')
done
awk -v share="$share" 'BEGIN { exit !(share > 0.2 && share <= 0.31) }' || fail "moed top: two devices that have 30 % of the experts each hold $share"
expect_both "two devices"
[ "$(lines 'host memory pinned')" = 1 ] || fail "the host memory is not pinned once"
[ "$(lines 'memd cache: ')" = 2 ] || fail "not an arena for each device"
kill -9 "$(pid_of worker-2)"
check "a worker was killed"
"$MOED" resize --vram 60% > /dev/null || fail "resize"
check "after the resize"
"$MOED" down > /dev/null

# -- two workers on one device: one arena, and the KV cache shared out
up --device cuda:0,vram=30% --workers 2
for policy in moed lru; do
    "$MOED" policy $policy > /dev/null && check "one device, $policy"
done
expect_both "one device"
[ "$(lines 'memd cache: ')" = 1 ] || fail "more than one arena"
a=$(metric worker 'moed_worker_device_bytes{use="kv"}') b=$(metric worker-2 'moed_worker_device_bytes{use="kv"}')
both=$(metric memd 'moed_memd_device_bytes{use="kv"}')
[ "$a" = "$b" ] && [ $((a + b)) = "$both" ] || fail "the workers have $a and $b bytes of KV cache of $both"
"$MOED" workers 3 2> "$WORK/err" && fail "memory for a third worker"
grep -q 'can be 1 to 2 workers' "$WORK/err" || fail "$(cat "$WORK/err")"
"$MOED" workers 1 > /dev/null && check "a worker was removed"
"$MOED" workers 2 > /dev/null && check "a worker was added"
"$MOED" down > /dev/null

# -- refused
"$MOED" up "$MODEL" --device cuda:0,1 --workers 1 2> "$WORK/err" && fail "one worker for two devices"
grep -q 'a device without a worker' "$WORK/err" || fail "$(cat "$WORK/err")"
"$MOED" up "$MODEL" --device cuda:0,2 2> "$WORK/err" && fail "a device that is not there"
grep -q 'cuda:2: the driver finds 2' "$WORK/err" || fail "$(cat "$WORK/err")"
