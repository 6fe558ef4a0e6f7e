#!/bin/bash
# Other programs that use the memory of a CUDA device, which tests/cusim simulates: what memd leaves them, and what happens when they
# take the memory of a worker that has died. The tokens equal the host's.
#   cuda_memory.sh MOED MODULE TAKE
MOED=$1 MODULE=$2 TAKE=$3
. "$(dirname "$0")/../deployment.sh"
[ -e "$MODULE" ] || skip "$MODULE is not here"
export MOED_CUDA_MODULE=$MODULE MOED_CUSIM_MEMORY=256M MOED_CUSIM_SHARED=$WORK/device
prompts=("Once upon a time" "int main(void) {" "0 1 2 3")
MODEL=$WORK/model.gguf
"$MOED" mkmodel --arch qwen3moe --layers 4 --hidden 256 --heads 4 --kv-heads 2 --head-dim 64 --experts 16 --top-k 2 \
    --expert-width 512 --vocab 500 --ctx 4096 --type Q8_0 --seed 5 -o "$MODEL" >/dev/null 2>&1
CTX=2048 # a request's KV cache has 4 MiB
up() { start_deployment "$MODEL" --reproducible --parallel 4 --ctx $CTX "$@"; }
down() { "$MOED" down >/dev/null 2>&1 || true; }
answers() { "$MOED" run -n 1 x; }
shows() { "$MOED" ps --json | grep -qF -- "$1"; }
kv_bytes() { metric worker 'moed_worker_device_bytes{use="kv"}'; }
check() {
    ask_all 20 got
    cmp -s "$WORK/want" "$WORK/got" || fail "$1: other tokens than on the host"
}
# take NAME LEAVE: another program takes all memory of the device but LEAVE bytes. leave NAME: it ends.
declare -A takers holds
take() {
    rm -f "$WORK/taken" "$WORK/hold"
    mkfifo "$WORK/hold"
    "$TAKE" "$2" <"$WORK/hold" >"$WORK/taken" 2>"$WORK/take-error" & takers[$1]=$!
    exec {hold}>"$WORK/hold"
    holds[$1]=$hold
    wait_until 10 test -s "$WORK/taken" || fail "no memory taken: $(cat "$WORK/take-error")"
}
leave() {
    local hold=${holds[$1]}
    exec {hold}>&-
    wait "${takers[$1]}" || fail "$(cat "$WORK/take-error")"
}
gone() { ! kill -0 "$1" 2>/dev/null; }
free_bytes() {
    "$TAKE" 0 </dev/null
}
kill_worker() {
    worker=$(pid_of worker)
    kill -9 "$worker"
    wait_until 10 gone "$worker" || fail "the worker does not die"
}

up
ask_all 20 want
down
all=$(free_bytes)

# One allocation of the worker fails for a moment: it waits, and nothing else happens.
MOED_CUSIM_FAIL=cudaMalloc:20:cudaErrorMemoryAllocation up --device cuda:0
! grep -q "has ended" "$RUN/supervise.log" || fail "a worker that lacks memory for a moment ends: $(cat "$RUN/supervise.log")"
check "a lack of a moment"
down
say "ok: memory that comes a moment later"

# What stays free: by default nothing, where a display runs a part, else what the user says.
plan() { grep "for the driver;" "$RUN/memd.log" | tail -n 1; } # of the last start
reserved() { plan | grep -qF "; $1 stay free for other programs"; }
up --device cuda:0
! plan | grep -q "stay free" || fail "memory is reserved without a display"
down
MOED_CUSIM_DISPLAY=1 up --device cuda:0
reserved "34 MB" || fail "no memory is reserved for a display: $(plan)"
down
MOED_CUSIM_DISPLAY=1 up --device cuda:0,reserve=0
! plan | grep -q "stay free" || fail "reserve=0 reserves memory"
down
up --device cuda:0,vram=25%,reserve=100M
reserved "100 MB" || fail "reserve=: $(plan)"
[ "$(free_bytes)" -ge 100000000 ] || fail "reserve=100M leaves $(free_bytes) bytes"
down
up --device cuda:0 --vram 25% --reserve 90M
reserved "90 MB" || fail "--reserve: $(plan)"
down
mkdir -p "$XDG_CONFIG_HOME/moed"
echo "reserve = 80M" >"$XDG_CONFIG_HOME/moed/default.conf"
MOED_DEVICE='' up # the device that moed up chooses
reserved "80 MB" || fail "reserve of the configuration file: $(plan)"
down
rm "$XDG_CONFIG_HOME/moed/default.conf"
"$MOED" up "$MODEL" --device cuda:0,reserve=300M >/dev/null 2>"$WORK/up" && fail "moed reserves more memory than there is"
grep -qF "there is no space for reserve=300 MB: give a smaller one" "$WORK/up" || fail "$(cat "$WORK/up")"
down
"$MOED" up "$MODEL" --device cuda:0,reserve=x >/dev/null 2>"$WORK/up" && fail "moed accepts reserve=x"
grep -qF "device cuda: reserve is not bytes" "$WORK/up" || fail "$(cat "$WORK/up")"
down
say "ok: reserve="

# What moed up says of the device it chooses is what memd makes, for all workers.
MOED_DEVICE='' MOED_CUSIM_MEMORY=100M start_deployment "$MODEL" --reproducible --ctx 4096 --workers 2
plan | grep -qF "(1 request of 4096 tokens for each of 2 workers)" || fail "the KV cache of two workers: $(plan)"
grep -qF "the KV cache holds 1 request of a whole context" "$WORK/up" || fail "moed up says: $(cat "$WORK/up")"
down

# While the worker is not there memd holds its memory, and a new worker gets it before it allocates anything. The supervisor is
# stopped meanwhile, so that it starts no worker. memd holds whole units of 2 MiB, as many as the worker leaves.
up --device cuda:0
whole=$(kv_bytes)
supervisor=$(pid_of supervise) memd=$(pid_of memd)
take other 0
before=$(free_bytes)
is_freed() { [ "$(free_bytes)" -gt $((before + (8 << 20))) ]; }
is_held() { [ "$(free_bytes)" -lt $((before + (2 << 20))) ]; }
stop_process "$supervisor" "$memd"
kill -9 "$(pid_of worker)"
wait_until 10 is_freed || { kill -CONT "$supervisor" "$memd"; fail "the dead worker's memory is not free: $(free_bytes) bytes are, with the worker $before"; }
kill -CONT "$memd"
wait_until 10 is_held || { kill -CONT "$supervisor"; fail "memd does not hold the dead worker's memory: $(free_bytes) bytes are free, with the worker $before"; }
kill -CONT "$supervisor"
wait_until 30 answers || fail "no answer while another program has all other memory"
[ "$(kv_bytes)" = "$whole" ] || fail "the KV cache has $(kv_bytes) bytes, before $whole"
check "memory that memd held"
leave other
say "ok: memd holds the memory of a worker that is not there"

# Other programs are faster. The worker waits for ten seconds, ends, and is started again; the state says what is missing.
scratch=$(metric memd 'moed_memd_device_bytes{use="scratch"}')
stop_process "$memd"
kill_worker
take first $((scratch + (9 << 20)))
take second 0
kill -CONT "$memd"
wait_until 20 shows '"waiting for memory of the device: cusim has no ' || fail "the worker does not say what it waits for: $("$MOED" ps --json)"
wait_until 30 shows '"no device memory before it was ready: stop other programs that use the device, or start moed anew with a smaller vram=' ||
    fail "the state lacks the reason: $("$MOED" ps --json)"
# Now there is memory for the scratch and for the KV cache of a request, and not for the whole KV cache.
leave second
wait_until 60 answers || fail "no answer with a smaller KV cache: $("$MOED" ps --json)"
less=$(kv_bytes)
[ "$less" -lt "$whole" ] && [ "$less" -ge $((CTX * 2048)) ] || fail "the KV cache has $less of $whole bytes, a request needs $((CTX * 2048))"
grep -q "the KV cache has [0-9.]* GB of [0-9.]*: cusim has no" "$RUN/worker.log" || fail "the log does not say that the KV cache is smaller"
shows "because other programs have memory of the device" || fail "moed ps does not say that the KV cache is smaller: $("$MOED" ps --json)"
check "a smaller KV cache"
[ "$(pid_of memd)" = "$memd" ] || fail "memd was restarted"
# The KV cache grows when there is memory.
leave first
whole_again() { [ "$(kv_bytes)" = "$whole" ]; }
wait_until 20 whole_again || fail "the KV cache has $(kv_bytes) of $whole bytes when there is memory again"
! shows "because other programs have memory of the device" || fail "moed ps still calls the KV cache small"
check "the KV cache is whole again"
# memd says what it waits for, too.
supervisor=$(pid_of supervise)
all_is_free() { [ "$(free_bytes)" -ge "$all" ]; } # the worker's, too, which ends with memd
stop_process "$supervisor"
kill -9 "$memd"
wait_until 20 all_is_free || { kill -CONT "$supervisor"; fail "the memory of a dead memd is not free"; }
take third 1Mi
kill -CONT "$supervisor"
wait_until 20 shows '"waiting for memory of the device: cusim has 1 MB of 268 MB free, ' || fail "memd does not say what it waits for: $("$MOED" ps --json)"
leave third
wait_until 60 answers || fail "no answer when memd has memory again"
down
say "ok: other programs take a dead worker's memory"
