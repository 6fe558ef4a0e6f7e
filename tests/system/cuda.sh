#!/bin/bash
# A deployment on a CUDA device, which tests/cusim simulates. The device gives the same tokens as the host under several policies
# and while the policy changes. The device holds the dense weights too. The test kills the worker and memd, makes the device fail,
# and checks the messages for a missing device and for too little device memory.
#   [MOED_TEST_SHORT=1] cuda.sh MOED MODULE DENSE-CHECK MODEL...     The tests with kills use the first model. MOED_TEST_SHORT: each
#   policy with one size of the device's memory, and one such size for the other models. With a real GPU's module the script omits the parts that need the simulation.
MOED=$1 MODULE=$2 DENSE_CHECK=$3 MODEL=$4
shift 3
. "$(dirname "$0")/../deployment.sh"
[ -e "$MODULE" ] || skip "$MODULE is not here"
export MOED_CUDA_MODULE=$MODULE
case $(basename "$MODULE") in *-sim.so) SIMULATED=yes ;; *) SIMULATED=no ;; esac
export MOED_DEVICE_POISON=1 # a wrong residency bit changes the tokens
prompts=("Once upon a time" "int main(void) {" "0 1 2 3")
CUT="--segment-bytes 32768"
STREAM_BYTES=$((8 << 20)) # the driver's part of the scratch memory, for a stream (DEVICE_STREAM_BYTES)

up() { # up MODEL [OPTION]...
    # shellcheck disable=SC2086 # words
    "$MOED" up "$@" --reproducible $CUT >/dev/null 2>"$WORK/up" || { cat "$WORK/up" >&2; fail "up $*"; }
}
down() { "$MOED" down >/dev/null 2>&1 || true; }
check() { ask_all 12 got; cmp -s "$WORK/want" "$WORK/got" || fail "$1: other tokens than on the host"; }
segments() { metric worker "moed_worker_segments_total{where=\"$1\"}"; }
on_device() { echo $(($(segments resident) + $(segments loaded))); }
copied() { echo $(($(metric memd 'moed_memd_copied_bytes_total{why="demanded"}') + $(metric memd 'moed_memd_copied_bytes_total{why="prefetched"}'))); }
answers() { "$MOED" run -n 1 x; }
log_has() { grep -qF -- "$2" "$RUN/$1.log" || fail "$1's log lacks: $2"; }
# device_bytes USE: prints the bytes of device memory that memd reports for USE.
device_bytes() { metric memd "moed_memd_device_bytes{use=\"$1\"}"; }
# The worker allocates what memd planned: exactly the bytes of the KV cache, and between half of the scratch memory and all of it.
worker_bytes() { metric worker "moed_worker_device_bytes{use=\"$1\"}"; }
plan_holds() {
    [ "$(worker_bytes kv)" = "$(device_bytes kv)" ] || fail "$1: $(worker_bytes kv) bytes of KV cache, planned $(device_bytes kv)"
    local used planned
    used=$(worker_bytes scratch) planned=$(($(device_bytes scratch) - STREAM_BYTES))
    [ "$used" -le "$planned" ] && [ $((2 * used)) -ge "$planned" ] || fail "$1: $used bytes of scratch, planned $planned"
}
# The device holds all dense weights, with the right bytes.
dense_there() {
    local bytes
    bytes=$("$DENSE_CHECK" "$RUN") || fail "$1: the dense weights on the device"
    [ "$bytes" -gt 0 ] && [ "$bytes" = "$(device_bytes dense)" ] || fail "$1: $bytes bytes of dense weights are on the device"
}
# refused LINE ENVIRONMENT... -- DEVICE OPTION...: `moed up` fails with LINE in its last line. The lines before show its progress.
refused() {
    local line=$1 environment=()
    shift
    while [ "$1" != -- ]; do environment+=("$1"); shift; done
    shift
    env "${environment[@]}" "$MOED" up "$MODEL" --device "$@" >/dev/null 2>"$WORK/up" && fail "moed accepts $*: $line"
    tail -n 1 "$WORK/up" | grep -qF -- "$line" || { cat "$WORK/up" >&2; fail "$*: no line with: $line"; }
    down
}

[ -e "$(dirname "$MOED")/../lib/moed/libmoed-cuda.so" ] ||
    refused "libmoed-cuda.so is missing, this moed was built without it: build it where the CUDA toolkit is installed" MOED_CUDA_MODULE= -- cuda
refused "MOED_CUDA_MODULE names $WORK/none, which cannot be read" MOED_CUDA_MODULE="$WORK/none" -- cuda
refused "bytes hold no segment of an expert" -- cuda:0,vram=1K
refused "device cuda: no option 'link'" -- cuda:0,link=1G
if [ $SIMULATED = yes ]; then
    # any library that moed links
    refused "is not a device module of moed" MOED_CUDA_MODULE="$(ldd "$MOED" | awk '$2 == "=>" { print $3; exit }')" -- cuda
    refused "no NVIDIA driver is installed here" MOED_CUSIM_DRIVER=0 -- cuda
    refused "the NVIDIA driver supports CUDA up to 11.4" MOED_CUSIM_DRIVER=11040 -- cuda
    refused "the driver finds no device" MOED_CUSIM_DEVICES=0 -- cuda
    refused "device cuda:3: the driver finds 2, counted from 0" MOED_CUSIM_DEVICES=2 -- cuda:3
    refused "of memory, vram= requests 9.00 GB: give a smaller vram=" -- cuda:0,vram=9G
    # memd and the worker are two processes: a mode that lets one use the device is refused before the model is loaded.
    export CUDA_MPS_PIPE_DIRECTORY=$WORK/no-mps
    refused "cusim is in compute mode Exclusive_Process, so one process can use it, and moed has two: give --mps, or run nvidia-smi -i 0 -c DEFAULT as root" \
        MOED_CUSIM_COMPUTE_MODE=3 -- cuda
    ! grep -q 'loaded' "$RUN/memd.log" || fail "a device of one process is refused after the model is loaded"
    refused "cusim is in compute mode Prohibited, so no process can use it" MOED_CUSIM_COMPUTE_MODE=2 -- cuda
    MOED_CUSIM_COMPUTE_MODE=3 MOED_CUSIM_MPS=1 up "$MODEL" --device cuda
    log_has memd "compute mode Exclusive_Process with MPS"
    down
    unset CUDA_MPS_PIPE_DIRECTORY
    # The plan: the message names the part that does not fit, and the remedy.
    refused "kB dense weights: give dense=host" MOED_CUSIM_MEMORY=2M -- cuda
    refused "scratch: lower --ctx or --parallel, or give dense=host" MOED_CUSIM_MEMORY=8M -- cuda
    refused "KV cache (1 request of 65536 tokens): lower --ctx, or give dense=host" MOED_CUSIM_MEMORY=40M -- cuda --ctx 65536
    refused "KV cache (200 requests of 512 tokens): lower --ctx, give --parallel 1 (131 kB) or --kv-type f16 (13 MB), or give dense=host" \
        MOED_CUSIM_MEMORY=40M -- cuda --parallel 200 --kv-type f32
    refused "kB of experts, a single segment: lower --ctx, or give dense=host" MOED_CUSIM_MEMORY=16M -- cuda
    refused "kB of experts: give a smaller vram=, lower --ctx, or give dense=host" MOED_CUSIM_MEMORY=16M -- cuda:0,vram=100K
    refused "kB of experts: give a smaller vram=" MOED_CUSIM_MEMORY=14M -- cuda:0,vram=40%,dense=host
    refused "scratch: this model needs a larger device" MOED_CUSIM_MEMORY=8M -- cuda:0,dense=host
fi
say "ok: messages of failed starts"

# moed devices, and what `moed up` chooses without --device
devices() { "$MOED" devices "$MODEL" "$@" >"$WORK/devices" 2>&1 || true; } # OPTION...
has() { grep -qE -- "$1" "$WORK/devices" || fail "moed devices lacks '$1': $(cat "$WORK/devices")"; }
devices
has '^cuda:0 +.*, [0-9.]+ .B of [0-9.]+ .B free, [0-9]+ multiprocessors'
has '^ +fits: [0-9.]+ .B of experts, [0-9]+ % of them; [0-9.]+ .B dense weights, [0-9.]+ .B KV cache$'
if [ $SIMULATED = yes ]; then
    MOED_CUSIM_DEVICES=2 devices
    has '^cuda:1 '
    MOED_CUSIM_MEMORY=40M devices --reserve 39M
    has '^ +does not fit: .* after 39 MB for other programs \(reserve=\)'
    devices --reserve 1x
    has '^moed: --reserve 1x: device cuda: reserve is not bytes'
    MOED_CUSIM_MEMORY=2M devices
    has '^ +does not fit: .* no space for .* dense weights'
    MOED_CUSIM_DEVICES=0 devices
    has '^moed: device cuda: the driver finds no device'
    MOED_DEVICE='' refused "--vram needs a GPU, and none can be used: device cuda: no NVIDIA driver" MOED_CUSIM_DRIVER=0 -- '' --vram 1M
    MOED_DEVICE='' refused "none can be used: cusim cannot share its memory between processes, as under WSL2: " \
        MOED_CUSIM_FAIL=cudaIpcGetMemHandle:1:cudaErrorNotSupported -- '' --vram 1M
    MOED_DEVICE='' refused "--reserve needs a GPU, and none can be used: device cuda: no NVIDIA driver" MOED_CUSIM_DRIVER=0 -- '' --reserve 1M
    MOED_DEVICE='' refused "none can be used: cuda:0 cusim has 42 MB of 42 MB free: after 39 MB for other programs (reserve=)" MOED_CUSIM_MEMORY=40M -- '' --reserve 39M
fi
refused "--vram needs a device with memory of its own" -- host --vram 1M
refused "--vram 1x: device cuda: vram is not bytes" -- cuda --vram 1x
refused "vram is given twice" -- cuda:0,vram=1M --vram 1M
refused "--reserve needs a device with memory of its own" -- host --reserve 1M
refused "--reserve 1x: device cuda: reserve is not bytes" -- cuda --reserve 1x
refused "reserve is given twice" -- cuda:0,reserve=1M --reserve 1M
refused "no option 'reserve'" -- emu:vram=1M,link=1G --reserve 1M
say "ok: devices"

for model in "$@"; do
    up "$model"
    ask_all 12 want
    down
    turn=0
    devices=(cuda cuda:0,vram=40% cuda:0,vram=20%)
    [ -z "${MOED_TEST_SHORT:-}" ] || [ "$model" = "$MODEL" ] || devices=(cuda:0,vram=40%)
    for device in "${devices[@]}"; do
        up "$model" --device $device --policy ondemand
        dense_there "$(basename "$model"), $device"
        plan_holds "$(basename "$model"), $device"
        for policy in ondemand moed "static --predictor none" "lru --predictor next-gate" "layerwise --prefetch chunked" \
            "dali --assign load-all" moepic prescope; do
            turn=$((turn + 1))
            [ -z "${MOED_TEST_SHORT:-}" ] || [ $((turn % 3)) = 0 ] || continue
            # shellcheck disable=SC2086 # words
            "$MOED" policy $policy >/dev/null || fail "policy $policy"
            before=$(on_device)
            check "$(basename "$model"), $device, $policy"
            case $policy in ondemand* | dali*) # these policies compute on the CPU only what does not fit on the device
                [ "$(on_device)" -gt "$before" ] || fail "$device, $policy: nothing was computed on the device" ;;
            esac
        done
        [ "$(metric worker moed_worker_loads_reclaimed_total)" = 0 ] || say "  (loads were late: a slow machine)"
        slots_add_up || fail "$device: slots do not add up"
        down
    done
    say "ok: $(basename "$model")"
done

# More requests run at once than the device's cache holds to their end: 4 requests of 100 tokens have 8 pages, these 12 have 24. On
# a slow link an answer takes longer than the start of all; on a GPU because it is longer.
few=("${prompts[@]}")
prompts=(a b c d e f g h i j k l)
tokens=80
[ $SIMULATED = yes ] || tokens=480
up "$MODEL" --ctx $((tokens + 20))
ask_all $tokens want
down
MOED_CUSIM_LINK=4M up "$MODEL" --device cuda:0,vram=40% --ctx $((tokens + 20)) --policy ondemand
many() {
    ask_all $tokens got
    cmp -s "$WORK/want" "$WORK/got" || fail "many requests: other tokens than on the host"
}
suspended() { [ "$(metric worker moed_worker_suspended_total)" -gt 0 ]; }
again_until suspended many || {
    [ $SIMULATED = no ] || fail "many requests: none gave its pages to another"
    say "  (answers end before the cache is full: not tested)"
}
down
prompts=("${few[@]}")
say "ok: more requests than the cache holds"

# Without --parallel the cache holds as many requests of a whole context as the device has memory for.
if [ $SIMULATED = yes ]; then
    MOED_CUSIM_MEMORY=40M up "$MODEL" --device cuda --ctx 32768
    grep -q 'KV cache (2 requests of 32768 tokens)' "$RUN/memd.log" || fail "memd's log lacks 2 requests: $(grep 'KV cache' "$RUN/memd.log")"
    plan_holds "2 requests"
    answers >/dev/null || fail "2 requests: no answer"
    down
    say "ok: a KV cache for fewer requests"
fi

# memd logs the plan; `moed map` and `moed ps` show it. The dense weights can stay on the host, with keys and values of any type.
# Without --device `moed up` chooses the GPU, and says so.
MOED_DEVICE='' up "$MODEL" --vram 40% --ctx 256 --parallel 3 --policy ondemand
grep -qE '^moed: uses cuda:[0-9]+: .* % of the experts fit \(--device host: without it\)$' "$WORK/up" || fail "no line that names the chosen GPU: $(cat "$WORK/up")"
grep -qE 'cuda:0 .*, [0-9.]+ .B free: [0-9.]+ .B dense weights, [0-9.]+ .B KV cache \(3 requests of 256 tokens\), [0-9.]+ .B scratch \(batches of 256 tokens\), [0-9.]+ .B for the driver; [0-9.]+ .B for experts, [0-9]+ % of them$' "$RUN/memd.log" ||
    fail "memd's log lacks the plan"
for place in map ps; do
    "$MOED" $place | tr -s ' \n' ' ' | # lines end at 80 columns
        grep -qE 'device.*: [0-9.]+ .B dense weights, [0-9.]+ .B experts, [0-9.]+ .B KV cache, [0-9.]+ .B scratch ' || fail "moed $place: $("$MOED" $place)"
done
"$MOED" ps --json | grep -q "\"device_memory\": {\"dense_bytes\": $(device_bytes dense), \"expert_bytes\": $(device_bytes experts), \"kv_bytes\": $(device_bytes kv), \"scratch_bytes\": $(device_bytes scratch)}" ||
    fail "ps --json: $("$MOED" ps --json)"
down
up "$MODEL" --kv-type f32
ask_all 12 want
down
up "$MODEL" --device cuda:0,vram=40%,dense=host --kv-type f32 --policy ondemand
check "dense=host"
[ "$("$DENSE_CHECK" "$RUN")" = 0 ] && [ "$(device_bytes dense)" = 0 ] && [ "$(device_bytes kv)" = 0 ] || fail "dense=host: dense weights on the device"
down
say "ok: the plan"

# Sampling: if the largest logits decide, the device returns only those. The tokens equal those that whole rows give on the host.
SAMPLING=("--temp 0.9 --top-k 20" "--temp 1.3 --top-k 200 --top-p 0.9 --min-p 0.01" "--temp 0" "--temp 0.8 --top-p 0.95"
    "--temp 0.8 --top-k 20 --repeat-penalty 1.2")
rows() { metric worker "moed_worker_sampled_rows_total{logits=\"$1\"}"; }
sample_all() { # sample_all FILE: a line of tokens for each of SAMPLING, first one request at a time, then three at once
    local options pids=() i
    for options in "${SAMPLING[@]}"; do
        # shellcheck disable=SC2086 # words
        "$MOED" run -n 24 --ignore-end --seed 5 $options --json "${prompts[0]}"
    done | sed -n 's/.*"tokens": *\(\[[^]]*\]\).*/\1/p' > "$WORK/$1"
    for i in 0 1 3; do
        # shellcheck disable=SC2086 # words
        "$MOED" run -n 24 --ignore-end --seed 5 ${SAMPLING[$i]} --json "${prompts[0]}" > "$WORK/at-once-$i" & pids+=($!)
    done
    wait "${pids[@]}" || fail "sampled requests"
    sed -n 's/.*"tokens": *\(\[[^]]*\]\).*/\1/p' "$WORK"/at-once-[013] >> "$WORK/$1"
}
up "$MODEL"
sample_all want-sampled
[ "$(rows largest)" = 0 ] && [ "$(rows all)" -gt 0 ] || fail "the host copies rows of logits"
down
up "$MODEL" --device cuda:0,vram=40% --policy ondemand
sample_all got-sampled
cmp -s "$WORK/want-sampled" "$WORK/got-sampled" || fail "other sampled tokens: $(diff "$WORK/want-sampled" "$WORK/got-sampled")"
[ "$(wc -l < "$WORK/got-sampled")" = 8 ] && [ "$(sort -u "$WORK/got-sampled" | wc -l)" = 5 ] || fail "samples: $(cat "$WORK/got-sampled")"
[ "$(rows largest)" -ge 96 ] && [ "$(rows all)" -ge 24 ] || fail "$(rows largest) rows of the largest, $(rows all) of all"
down
say "ok: sampling"

# Changes of the policy while requests run, then kills.
up "$MODEL"
ask_all 60 want-long
ask_all 12 want
down
up "$MODEL" --device cuda:0,vram=40% --policy ondemand
ask_all 60 got-long & asking=$!
for change in lru "dali --predictor none" ondemand moed "--predictor next-gate" "--cache lru --budget uniform" ondemand; do
    sleep 0.05
    # shellcheck disable=SC2086 # words
    "$MOED" policy $change >/dev/null || fail "policy $change"
done
wait $asking || fail "answers while the policy changes"
cmp -s "$WORK/want-long" "$WORK/got-long" || fail "other tokens while the policy changes"
say "ok: the policy changes while requests run"

# Device-only layers: some find an expert missing on the device. All requests are long, so the worker uses the layers' graphs.
down
up "$MODEL" --device cuda:0,vram=80% --policy lru --assign load-all
long_answers() {
    ask_all 60 got-long
    cmp -s "$WORK/want-long" "$WORK/got-long" || fail "other tokens with device-only layers"
}
discarded() {
    [ "$(metric worker moed_worker_device_only_layers_total)" -gt 0 ] && [ "$(metric worker moed_worker_device_only_layers_discarded_total)" -gt 0 ]
}
again_until discarded long_answers || fail "no device-only layer, or none discarded: $("$MOED" metrics worker | grep device_only_layers)"
down
up "$MODEL" --device cuda:0,vram=40% --policy ondemand
say "ok: device-only layers"

# If a kill cuts an answer short, the answer is the beginning of the right one.
kill_worker() {
    local pids=() i code
    for i in "${!prompts[@]}"; do
        "$MOED" run -n 60 --ignore-end --temp 0 "${prompts[$i]}" > "$WORK/cut-$i" 2>"$WORK/err-$i" & pids+=($!)
    done
    sleep "$1"
    kill -9 "$(pid_of worker)" || fail "no worker to kill"
    for i in "${!pids[@]}"; do
        set +e; wait "${pids[$i]}"; code=$?; set -e
        [ $code -eq 0 ] || grep -qi again "$WORK/err-$i" || fail "$(cat "$WORK/err-$i")"
        cmp -s -n "$(($(wc -c < "$WORK/cut-$i") > 4 ? $(wc -c < "$WORK/cut-$i") - 4 : 0))" "$WORK/whole-$i" "$WORK/cut-$i" ||
            fail "wrong tokens before a kill"
    done
    wait_until 30 answers || fail "no answer after the worker died"
}
for i in "${!prompts[@]}"; do "$MOED" run -n 60 --ignore-end --temp 0 "${prompts[$i]}" > "$WORK/whole-$i"; done
memd=$(pid_of memd)
for pause in 0.05 0.15 0.3; do
    kill_worker $pause
    check "after the worker died"
done
[ "$(pid_of memd)" = "$memd" ] || fail "memd was restarted"
settled() { [ "$(policy_field filling)" = 0 ] && [ "$(policy_field retired)" = 0 ] && slots_add_up; }
wait_until 30 settled || fail "slots: $("$MOED" policy --json)"
say "ok: the worker dies"

# When the device holds all experts, the next worker finds them there and copies nothing.
down
up "$MODEL" --device cuda --policy lru --assign load-all
all_resident() { [ "$(policy_field free)" = 0 ] || { answers; ask_all 12 got; false; }; }
wait_until 30 all_resident || fail "some experts are not resident: $("$MOED" policy --json)"
ask_all 12 got
device_only=$(metric worker moed_worker_device_only_layers_total) replayed=$(metric worker moed_worker_layers_replayed_total)
graphs_used() {
    [ "$(metric worker moed_worker_device_only_layers_total)" -gt "$device_only" ] && [ "$(metric worker moed_worker_layers_replayed_total)" -gt "$replayed" ]
}
again_until graphs_used check "device-only layers with all experts resident" ||
    fail "no device-only layer, or the worker replays none as a graph: $("$MOED" metrics worker | grep layers)"
# device_computes: the device computes experts while no layer is planned.
figures() { echo "$(metric worker moed_worker_plan_seconds_count) $(metric worker moed_worker_device_busy_seconds_total)"; }
device_computes() { [ "${now% *}" = "${then% *}" ] && awk -v was="${then#* }" -v is="${now#* }" 'BEGIN { exit !(is > was) }'; }
answer_alone() { then=$(figures) && "$MOED" run -n 12 --ignore-end --temp 0 "${prompts[0]}" >/dev/null && now=$(figures); }
again_until device_computes answer_alone || fail "device-only layers do not count as busy: plans and seconds $then, then $now"
before=$(copied)
kill -9 "$(pid_of worker)"
wait_until 30 answers || fail "no answer after the worker died"
check "a warm cache"
[ "$(on_device)" -gt 0 ] && [ "$(segments loaded)" = 0 ] || fail "misses after the worker's death"
[ "$(copied)" = "$before" ] || fail "memd copied segments again"
say "ok: the cache stays warm"

kill -9 "$(pid_of memd)"
wait_until 30 answers || fail "no answer after memd died"
check "after memd died"
dense_there "after memd died"
down
say "ok: memd dies"

[ $SIMULATED = yes ] || exit 0
# No memory for a graph: the worker makes no more graphs and continues without them. The driver also refuses to pin.
MOED_CUSIM_FAIL=cudaGraphInstantiate:4:cudaErrorMemoryAllocation,cudaHostRegister:1,cudaHostRegister:2 up "$MODEL" --device cuda --policy lru --assign load-all
# A worker that starts with a full cache plans its first two steps on the host. One request then needs a graph for each of the two
# layers' fronts, one for both layers, and, from the 257th token, the one that fails.
wait_until 30 all_resident || fail "experts are missing on the device: $("$MOED" policy --json)"
kill -9 "$(pid_of worker)"
wait_until 30 answers || fail "no answer after the worker died"
worker=$(pid_of worker)
without_more() {
    grep -qF "no more layers are kept as CUDA graphs" "$RUN/worker.log" && [ "$(metric worker moed_worker_layers_replayed_total)" -gt 0 ]
}
long_and_short() {
    "$MOED" run -n 300 --ignore-end --temp 0 x >/dev/null || fail "no memory for a graph: no answer"
    check "no memory for a graph"
}
again_until without_more long_and_short ||
    fail "no memory for a graph: no line says so, or no layer was replayed: $("$MOED" metrics worker | grep layers)"
log_has memd "GB are not pinned: "
[ "$(pid_of worker)" = "$worker" ] || fail "no memory for a graph ends the worker"
down
say "ok: no memory for a graph"
# The device waits for segments, over a link on which a segment takes some milliseconds. The device does wait, and the tokens are
# right. If memd or the worker dies during the wait, the deployment soon answers again. If the driver cannot wait for a number, the
# worker waits, with the same tokens.
awaited() { metric worker moed_worker_segments_awaited_total; }
slow_up() { MOED_CUSIM_LINK=6M up "$MODEL" --device cuda:0,vram=20% --policy ondemand --assign load-all "$@"; }
slow_up
many_awaited() { [ "$(awaited)" -gt 20 ]; }
again_until many_awaited check "the device waits for segments" || fail "the device waited for $(awaited) segments"
[ "$(awaited)" -le "$(segments loaded)" ] || fail "$(awaited) segments awaited, $(segments loaded) loaded"
[ "$(metric worker moed_worker_loads_reclaimed_total)" = 0 ] || say "  (loads were late: a slow machine)"
"$MOED" policy moed >/dev/null || fail "policy moed"
check "the device waits, policy moed"
"$MOED" policy ondemand --assign load-all >/dev/null || fail "policy ondemand"
memd=$(pid_of memd)
for pause in 0.05 0.12 0.21; do
    kill_worker $pause
    check "the worker died during a wait"
done
[ "$(pid_of memd)" = "$memd" ] || fail "memd was restarted"
wait_until 30 settled || fail "slots: $("$MOED" policy --json)"
gone() { ! kill -0 "$worker" 2>/dev/null; }
for pause in 0.11 0.2 0.33; do
    worker=$(pid_of worker)
    "$MOED" run -n 60 --ignore-end --temp 0 "${prompts[0]}" >/dev/null 2>&1 & asking=$!
    sleep $pause
    kill -9 "$(pid_of memd)"
    wait_until 30 gone || fail "the worker does not exit when memd has died"
    wait $asking || true
    wait_until 30 answers || fail "no answer after memd died while the device waited"
done
check "memd died while the device waited"
down
# memd is stopped, so the device would wait for ever: the worker exits, and a new worker serves when memd continues. A segment takes
# some 60 ms. If memd copies none at the moment of the stop, the worker reclaims its loads after a second and computes the rest of the
# answer without loads, so each try begins with an answer of its own.
MOED_CUSIM_LINK=200K up "$MODEL" --device cuda:0,vram=20% --policy ondemand --assign load-all
worker=$(pid_of worker) memd=$(pid_of memd)
reclaimed() { metric worker moed_worker_loads_reclaimed_total; }
decided() { # whether it shows by now if the stop hit a copy: the worker has gone, the answer has ended, or loads were reclaimed
    local now
    gone || ! kill -0 $asking 2>/dev/null || { now=$(reclaimed) && [ -n "$now" ] && [ "$now" != "$before" ]; }
}
stopped() { # stopped SECONDS: stops memd after SECONDS of an answer; whether the device waited for a load then
    "$MOED" run -n 400 --ignore-end --temp 0 "${prompts[0]}" >/dev/null 2>&1 & asking=$!
    sleep "$1"
    before=$(reclaimed)
    stop_process "$memd"
    wait_until 30 decided || { kill -CONT "$memd"; fail "the worker waits for ever: reclaimed $before, now $(reclaimed)"; }
    gone || { kill -CONT "$memd"; kill $asking 2>/dev/null; wait $asking; false; }
}
tries=0
until stopped 0.5$((tries * 7 % 10)); do
    tries=$((tries + 1))
    [ $tries -lt 30 ] || fail "no stop of memd hit a copy"
done
kill -CONT "$memd"
log_has worker "the device waits for loads that do not come: memd has done nothing for ten seconds"
kill $asking; wait $asking || true
wait_until 30 answers || fail "no answer after memd was stopped"
[ "$(pid_of memd)" = "$memd" ] || fail "memd was restarted though it was only stopped"
check "memd was stopped while the device waited"
down
MOED_CUSIM_FLAGS=0 slow_up
check "a driver without flags"
[ "$(awaited)" = 0 ] && [ "$(segments loaded)" -gt 0 ] || fail "a driver without flags: $(awaited) awaited"
down
say "ok: the device waits for segments"

# Faults: the process that owns the context logs one line and exits, and the supervisor restarts it. memd's cache outlives the worker.
# (Only workers run kernels; only memd waits for events.)
MOED_CUSIM_FAIL=kernel:1500:cudaErrorIllegalAddress up "$MODEL" --device cuda:0,vram=40% --policy ondemand
memd=$(pid_of memd) worker=$(pid_of worker)
died() { "$MOED" run -n 12 --ignore-end x; [ "$(pid_of worker)" != "$worker" ]; }
wait_until 30 died || fail "the device's fault does not end the worker"
log_has worker "an illegal memory access was encountered (cudaErrorIllegalAddress)"
wait_until 30 answers || fail "no answer after the worker's device failed"
[ "$(pid_of memd)" = "$memd" ] || fail "the worker's fault ended memd"
down
MOED_CUSIM_FAIL=cudaEventRecord:200:cudaErrorECCUncorrectable up "$MODEL" --device cuda:0,vram=20% --policy ondemand
memd=$(pid_of memd)
died() { "$MOED" run -n 12 --ignore-end x; [ "$(pid_of memd)" != "$memd" ]; }
wait_until 30 died || fail "the device's fault does not end memd"
log_has memd "uncorrectable ECC error encountered (cudaErrorECCUncorrectable)"
wait_until 30 answers || fail "no answer after memd's device failed"
down
say "ok: faults"
