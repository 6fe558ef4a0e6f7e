#!/bin/bash
# Every build of the kernels that this CPU can run gives the same logits of whole models, to the bit: in the worker and in cpuexec,
# with many tokens at once and with one at a time.
#   [MOED_TEST_SHORT=1] kernels.sh MOED MEMD WORKER CPUEXEC TOKENS MODEL...
# MOED_TEST_SHORT: without the processes of different builds.
MOED=$1 MEMD=$2 WORKER=$3 CPUEXEC=$4 TOKENS=$(tr -s ' \n' ',,' < "$5" | sed 's/,$//')
shift 5
. "$(dirname "$0")/../deployment.sh"
mkdir -m 700 "$RUN"
pids=()
stop() { # stop N: stops the N processes that were started last
    local i pid
    for i in $(seq "$1"); do
        pid=${pids[-1]}
        unset "pids[-1]"
        kill "$pid" && wait "$pid" || fail "a process ends with code $?"
    done
}
trap 'set +e -- $?; [ ${#pids[@]} -eq 0 ] || kill "${pids[@]}"; (exit $1); end' EXIT

# start PROCESS PROGRAM [OPTION]...: starts it and waits until it is ready. Returns 2 if this CPU lacks instructions of the kernels.
start() {
    local log=$RUN/$1.log name=$1
    shift
    : > "$log" # before the start: the log of the previous process has the same name
    "$@" --run "$RUN" 2>> "$log" & pids+=($!)
    wait_until 60 grep -q -e "ready after" -e "cannot run on this CPU" "$log" || fail "$name does not start: $(tail -n 2 "$log")"
    grep -q "ready after" "$log" && return
    wait "${pids[-1]}" || true
    unset "pids[-1]"
    return 2
}

# serve WORKER'S-KERNELS CPUEXEC'S-KERNELS: starts both processes. Returns 2 if this CPU lacks instructions of one of them.
serve() {
    start cpuexec "$CPUEXEC" --reproducible --kernels "$2" || return 2
    start worker "$WORKER" --cpuexec --reproducible --kernels "$1" || { stop 1; return 2; }
    wait_until 20 grep -q "cpuexec attached" "$RUN/worker.log" || fail "cpuexec is not attached"
    "$MOED" ps --json | tr '{' '\n' > "$WORK/ps" # a line a process
    grep -q '"worker".*'" $1 kernels" "$WORK/ps" || fail "the worker does not use $1: $(cat "$WORK/ps")"
    grep -q '"cpuexec".*'" $2 kernels" "$WORK/ps" || fail "cpuexec does not use $2: $(cat "$WORK/ps")"
}

# logits FILE: writes the logits of all tokens as one batch, then of one token at a time. cpuexec computes all of its jobs: on a loaded
# machine it may be so late that the worker reclaims one.
reclaimed() { metric worker moed_worker_jobs_reclaimed_total; }
by_cpuexec() { [ "$(reclaimed)" = "$before" ]; }
logits_once() {
    before=$(reclaimed)
    "$MOED" logits --tokens "$TOKENS" -o "$1.batch" && "$MOED" logits --stepwise --tokens "$TOKENS" -o "$1.stepwise" || fail "moed logits"
}
logits() {
    again_until by_cpuexec logits_once "$1" || fail "the worker reclaimed jobs of cpuexec"
    cat "$1.batch" "$1.stepwise" > "$1"
    [ "$(metric cpuexec moed_cpuexec_experts_total)" -gt 0 ] || fail "cpuexec computed nothing"
}

compared=0
pairs=("avx2 avx2" "avx512 avx512") # the worker's, cpuexec's
[ -n "${MOED_TEST_SHORT:-}" ] || pairs+=("portable avx2" "avx2-vnni avx2")
for MODEL in "$@"; do
    start memd "$MEMD" --model "$MODEL"
    serve portable portable
    logits "$WORK/want"
    stop 2
    for kernels in "${pairs[@]}"; do
        set -- $kernels
        serve "$@" || { say "worker $1, cpuexec $2: not on this CPU"; continue; }
        logits "$WORK/got"
        stop 2
        cmp "$WORK/want" "$WORK/got" || fail "$(basename "$MODEL"), worker $1, cpuexec $2: not portable's logits"
        say "$(basename "$MODEL" .gguf), worker $1, cpuexec $2: $(stat -c %s "$WORK/got") bytes of logits, portable's"
        compared=$((compared + 1))
    done
    stop 1
done
[ $compared -gt 0 ] || skip "this CPU can only run the portable build"
