#!/bin/bash
# `moed resize`: the device memory for experts shrinks and grows while requests run, on the emulated device and on the simulated CUDA
# device. The tokens equal the host's, also when a process dies; the slots add up; moed shows the sizes and refuses invalid ones.
#   [MOED_TEST_SHORT=1] resize.sh MOED MODULE     MODULE may be missing. MOED_TEST_SHORT: shorter answers. On a GPU: DEVICE=cuda:N;
#   the script omits the parts that need the simulation
MOED=$1 MODULE=$2
. "$(dirname "$0")/../deployment.sh"
# Background jobs end first: they write into the directory that is removed.
trap 'code=$?; set +e; touch "$WORK/stop"; wait; (exit $code); end' EXIT
export MOED_CUDA_MODULE=$MODULE MOED_DEVICE_POISON=1 # a read of an empty slot changes the tokens
export MOED_CUSIM_MEMORY=256M
prompts=("Once upon a time" "int main(void) {" "0 1 2 3")
MODEL=$WORK/model.gguf
# 192 experts of 418 kB: an extent holds some 6 of them with emu, and 25 (8 MiB at least) with cuda.
"$MOED" mkmodel --arch qwen3moe --layers 4 --hidden 256 --heads 4 --kv-heads 2 --head-dim 64 --experts 48 --top-k 2 \
    --expert-width 512 --vocab 500 --ctx 512 --type Q8_0 --seed 5 -o "$MODEL" >/dev/null 2>&1

N=40 LONG=60 # tokens of answers, and of those that a kill interrupts
[ -z "${MOED_TEST_SHORT:-}" ] || N=16 LONG=40
PARALLEL=2 # requests at once: the third request of ask_all waits
# The watchdog must not kill the worker that the test stops, which on a busy machine takes long.
up() { start_deployment "$MODEL" --watchdog 0 --reproducible --parallel $PARALLEL --ctx 512 "$@"; }
down() { "$MOED" down >/dev/null 2>&1 || true; }
answers() { "$MOED" run -n 1 x; }
resize() { timeout 60 "$MOED" resize --vram "$1" > "$WORK/resize" 2>&1 || fail "resize $1: $(cat "$WORK/resize")"; }
# refused LINE SIZE: the resize fails with LINE and changes nothing.
refused() {
    local before code=0
    before=$(policy_field slots)
    "$MOED" resize --vram "$2" > "$WORK/resize" 2>&1 || code=$?
    [ $code -ne 0 ] || fail "moed accepts resize $2: $(cat "$WORK/resize")"
    [ "$(wc -l < "$WORK/resize")" -eq 1 ] && grep -qF -- "$1" "$WORK/resize" || fail "resize $2: no line with '$1': $(cat "$WORK/resize")"
    [ "$(policy_field slots)" = "$before" ] || fail "resize $2 was refused but changed the slots from $before to $(policy_field slots)"
}
# has PERCENT: policy, ps and metrics show PERCENT of the 192 slots. An expert has 3 * 256 * 512 * 34 / 32 bytes.
has() {
    local slots=$((192 * $1 / 100)) bytes
    bytes=$((slots * 417792))
    [ "$(policy_field slots)" = "$slots" ] || fail "$1 %: $(policy_field slots) slots, expected $slots"
    [ "$(metric memd 'moed_memd_device_bytes{use="experts"}')" = "$bytes" ] || fail "$1 %: metrics: not $bytes bytes of experts"
    "$MOED" ps --json | grep -q "\"expert_bytes\": $bytes," || fail "$1 %: ps: not $bytes bytes of experts"
    slots_add_up || fail "$1 %: slots do not add up"
}
# kill_memd: kills memd and waits until another one and its worker answer.
kill_memd() {
    memd=$(pid_of memd) worker=$(pid_of worker)
    kill -9 "$memd"
    wait_until 30 others_answer || fail "no answer after memd died"
}
others_answer() { [ "$(pid_of memd)" != "$memd" ] && [ "$(pid_of worker)" != "$worker" ] && answers; }
becomes() { (has "$1"); }
settled() { [ "$(policy_field filling)" = 0 ] && [ "$(policy_field retired)" = 0 ] && slots_add_up; }

# Resizes again and again until the file $WORK/stop exists. Every third resize does not wait for its end.
resize_all_the_time() {
    local n=0 size code
    while :; do
        for size in 12% 100% 3% 55% 1M 40M 80%; do
            [ ! -e "$WORK/stop" ] || return 0
            echo $n > "$WORK/resizes"
            n=$((n + 1))
            case $((n % 3)) in
            0) timeout 60 "$MOED" resize --vram $size --no-wait >/dev/null 2>"$WORK/resize-error" ;;
            *) timeout 60 "$MOED" resize --vram $size >/dev/null 2>"$WORK/resize-error" ;;
            esac || { code=$?; [ -e "$WORK/deaths" ] || { echo "resize $size: $code" >> "$WORK/resize-error"; return 1; }; sleep 0.1; }
        done
    done
}
start_resizing() {
    rm -f "$WORK/stop" "$WORK/deaths" "$WORK/resizes"
    [ $# -eq 0 ] || touch "$WORK/deaths" # a process may be missing
    resize_all_the_time & resizing=$!
}
stop_resizing() {
    touch "$WORK/stop"
    wait $resizing || fail "$1: $(cat "$WORK/resize-error")"
}
resized() { [ "$(cat "$WORK/resizes" 2>/dev/null || echo 0)" -ge "$1" ]; }
# answer_while_resizing WHAT: answers until a few resizes are over.
answer_while_resizing() {
    until
        ask_all $N got
        cmp -s "$WORK/want" "$WORK/got" || fail "$1: other tokens than on the host"
        resized 3 || ! kill -0 $resizing 2>/dev/null
    do :; done
}

up
ask_all $N want
refused "device host has no memory of its own" 25%
for i in "${!prompts[@]}"; do "$MOED" run -n $LONG --ignore-end --temp 0 "${prompts[$i]}" > "$WORK/whole-$i"; done
down

check_device() { # check_device DEVICE...: DEVICE has 50 %
    local device=$1
    shift
    up --device "$device" --policy lru
    has 50
    refused "hold no segment of an expert" 1K
    refused "vram is not bytes" 12x
    "$MOED" resize >/dev/null 2>&1 && fail "moed accepts resize without a size"
    for size in 25 100 3 50; do
        resize $size%
        grep -qE "^experts [0-9.]+ .B, [0-9]+ % of them(, KV cache [0-9.]+ .B)? -> experts [0-9.]+ .B, $size % of them(, KV cache [0-9.]+ .B)?$" "$WORK/resize" ||
            fail "resize $size%: $(cat "$WORK/resize")"
        has $size
    done
    resize 1000000 # two slots
    [ "$(policy_field slots)" = 2 ] || fail "1 MB: $(policy_field slots) slots"
    resize 900% # gives all slots
    has 100

    for policy in moed ondemand; do
        "$MOED" policy $policy >/dev/null || fail "policy $policy"
        start_resizing
        answer_while_resizing "$device, $policy"
        stop_resizing "$device, $policy"
        wait_until 30 settled || fail "$device, $policy: slots: $("$MOED" policy --json)"
        resize 50%
        has 50
    done
    # With load-all the device computes what it has; with balance only where that pays, which depends on the machine's load.
    "$MOED" policy moed --assign load-all >/dev/null || fail "policy --assign"
    ask_all 8 got
    [ "$(metric worker 'moed_worker_segments_total{where="resident"}')" -gt 0 ] || fail "$device: the device computed nothing"
    down
    say "ok: $device, the same tokens while its memory shrinks and grows"

    # Kills: if a kill cuts an answer short, the answer is the beginning of the right one.
    up --device "$device" --policy moed
    memd=$(pid_of memd)
    start_resizing deaths
    for pause in 0.05 0.2 0.4; do
        local pids=() i code
        for i in "${!prompts[@]}"; do
            "$MOED" run -n $LONG --ignore-end --temp 0 "${prompts[$i]}" > "$WORK/cut-$i" 2>"$WORK/err-$i" & pids+=($!)
        done
        sleep $pause
        kill -9 "$(pid_of worker)" || fail "no worker to kill"
        for i in "${!pids[@]}"; do
            code=0
            wait "${pids[$i]}" || code=$?
            [ $code -eq 0 ] || grep -qi again "$WORK/err-$i" || fail "$(cat "$WORK/err-$i")"
            cmp -s -n "$(($(wc -c < "$WORK/cut-$i") > 4 ? $(wc -c < "$WORK/cut-$i") - 4 : 0))" "$WORK/whole-$i" "$WORK/cut-$i" ||
                fail "$device: wrong tokens before a kill"
        done
        wait_until 30 answers || fail "no answer after the worker died"
        ask_all $N got
        cmp -s "$WORK/want" "$WORK/got" || fail "$device: other tokens after the worker died"
    done
    [ "$(pid_of memd)" = "$memd" ] || fail "memd was restarted"
    stop_resizing "$device, the worker dies"
    resize 25%
    has 25
    wait_until 30 settled || fail "$device: slots: $("$MOED" policy --json)"
    start_resizing deaths
    sleep 0.2
    kill_memd
    ask_all $N got
    cmp -s "$WORK/want" "$WORK/got" || fail "$device: other tokens after memd died"
    stop_resizing "$device, memd dies"
    resize 75%
    has 75
    kill_memd # the next memd uses the size of `moed up`
    wait_until 30 becomes 50 || fail "$device: a new memd: $(policy_field slots) slots"
    # A stopped worker delays a resize. A second resize replaces the first one, and completes when the worker continues.
    worker=$(pid_of worker)
    stop_process "$worker"
    : >"$WORK/first" # else it may still have the text of the device before
    "$MOED" resize --vram 3% > "$WORK/first" 2>&1 & first=$!
    wait_until 30 grep -q "waiting for a worker to close the memory that goes" "$WORK/first" || { kill -CONT "$worker"; fail "$(cat "$WORK/first")"; }
    "$MOED" resize --vram 100% --no-wait | grep -q -- '-> under way$' || { kill -CONT "$worker"; fail "--no-wait"; }
    code=0
    wait $first || code=$?
    [ $code -ne 0 ] && grep -q "another resize has taken its place" "$WORK/first" || { kill -CONT "$worker"; fail "first: $(cat "$WORK/first")"; }
    kill -CONT "$worker"
    wait_until 30 becomes 100 || fail "$device: after a worker was stopped: $(policy_field slots) slots"
    ask_all $N got
    cmp -s "$WORK/want" "$WORK/got" || fail "$device: other tokens after a worker was stopped"
    down
    say "ok: $device, kills"
}

case $(basename "$MODULE") in
*-sim.so) ;;
*) [ ! -e "$MODULE" ] || { check_device "${DEVICE:-cuda:0},vram=50%"; exit 0; } ;;
esac
check_device emu:vram=50%,link=8G

# With a host tier: the host memory may lack a segment that the device evicts.
up --device emu:vram=50%,link=8G --ram 50% --policy moed
start_resizing
answer_while_resizing "--ram 50%"
stop_resizing "--ram 50%"
wait_until 30 settled || fail "--ram 50%: slots: $("$MOED" policy --json)"
down
say "ok: with a part of the experts in host memory"
[ -e "$MODULE" ] || { say "$MODULE does not exist: no test on a simulated device"; exit 0; }
check_device cuda:0,vram=50%

# Experts and KV cache share the memory. Of 75 MB the driver uses at most a quarter, and the KV cache 17 MB, 2 KiB a position. So not
# all experts fit, and with the most experts the KV cache holds little more than one request.
export MOED_CUSIM_MEMORY=72M PARALLEL=16
up --device cuda --policy lru
kv=$(metric memd 'moed_memd_device_bytes{use="kv"}')
[ "$kv" = $((16 * 512 * 2048)) ] || fail "$kv bytes of KV cache"
before=$(metric memd 'moed_memd_device_bytes{use="experts"}')
refused "more than the device has for experts next to the KV cache of one request: at most" 100%
most=$(sed -n 's/.*at most \([0-9]*\) MB$/\1/p' "$WORK/resize")
resize "$((most - 1))M" # the message rounds the size
less=$(metric memd 'moed_memd_device_bytes{use="kv"}')
[ "$less" -lt $((kv / 4)) ] && [ "$less" -ge $((512 * 2048)) ] || fail "the KV cache has $less of $kv bytes"
[ "$(metric memd 'moed_memd_device_bytes{use="experts"}')" -gt "$before" ] || fail "no more bytes of experts than $before"
resize 3%
[ "$(metric memd 'moed_memd_device_bytes{use="kv"}')" = "$kv" ] || fail "the KV cache is not whole again"
ask_all $N got
cmp -s "$WORK/want" "$WORK/got" || fail "other tokens with a smaller KV cache"
down
# Without --parallel the KV cache starts with memory for 2 requests of 4096 tokens, 8 MiB each. When the experts leave more, it is for 4.
"$MOED" mkmodel --arch qwen3moe --layers 4 --hidden 256 --heads 4 --kv-heads 2 --head-dim 64 --experts 16 --top-k 2 \
    --expert-width 512 --vocab 500 --ctx 4096 --type Q8_0 --seed 5 -o "$WORK/long.gguf" >/dev/null 2>&1
export MOED_CUSIM_MEMORY=100M
start_deployment "$WORK/long.gguf" --ctx 4096 --device cuda
kv_is() { [ "$(metric memd 'moed_memd_device_bytes{use="kv"}')" = "$1" ] && [ "$(metric worker 'moed_worker_device_bytes{use="kv"}')" = "$1" ]; }
kv_is $((2 << 23)) || fail "the KV cache does not start with two requests: $("$MOED" metrics memd)"
resize 3%
wait_until 10 kv_is $((4 << 23)) || fail "the KV cache has not what the experts left: $("$MOED" metrics memd)"
"$MOED" run -n 3 x >/dev/null || fail "no answer with a larger KV cache"
down
say "ok: the KV cache's share"

# Extents that the worker cannot map after it has given up system calls (at start there are two): the log names those.
export MOED_CUSIM_MEMORY=256M PARALLEL=2
failures=$(printf 'cudaIpcOpenMemHandle:%d:cudaErrorMapBufferObjectFailed,' {3..99})
MOED_CUSIM_FAIL=${failures%,} up --device cuda:0,vram=10% --policy lru
"$MOED" resize --vram 100% >"$WORK/resize" 2>&1 && fail "a resize without its memory succeeds"
grep -q "a worker cannot map more of the device's memory: its log says why" "$WORK/resize" || fail "$(cat "$WORK/resize")"
hint="; perhaps the driver needs a system call that the worker gives up when it is ready: .* --no-confine"
grep -q '^Seccomp:.2' "/proc/$(pid_of worker)/status" || hint= # a sanitizer needs the calls
grep -q "(cudaErrorMapBufferObjectFailed)$hint" "$RUN/worker.log" || fail "the worker's log does not name what it has given up"
ask_all $N got
cmp -s "$WORK/want" "$WORK/got" || fail "other tokens after memory that cannot be mapped"
down
say "ok: memory that cannot be mapped"
