#!/bin/bash
# An executor that makes progress but never finishes a job. The worker reclaims the job, and sends the executor no jobs for some time.
# The answer is right. kill.sh tests an executor that stops or dies.
#   slow_executor.sh MOED MODEL SLOW_EXECUTOR
MOED=$1 MODEL=$2 SLOW=$3
. "$(dirname "$0")/../deployment.sh"
N=60
ask() { "$MOED" run -n $N --ignore-end --temp 0 "Once upon a time"; }

start_deployment "$MODEL" --reproducible
ask > "$WORK/want"
"$MOED" down >/dev/null
# layerwise computes much on the CPU, and each job is short: a job of a second is far too slow
start_deployment "$MODEL" --reproducible --device emu:vram=30%,link=400M --policy layerwise
ask > "$WORK/got"
cmp -s "$WORK/want" "$WORK/got" || fail "wrong tokens"
stopped=$(pid_of cpuexec)
stop_process "$stopped"
"$SLOW" "$RUN" > "$WORK/slow" 2>&1 & slow=$!
wait_until 10 grep -q listening "$WORK/slow" || fail "$(cat "$WORK/slow")"
over() { kill -CONT "$stopped" 2>/dev/null || true; kill "$slow" 2>/dev/null || true; }
attached() { [ "$(grep -c "cpuexec attached" "$RUN/worker.log")" -ge 2 ]; }
given_up() { grep -q "cpuexec takes .* for a job that should take" "$RUN/worker.log"; }
# during the first answer the worker gives up the stopped cpuexec; the next answers use the slow one
for ((i = 0; i < 20; i++)); do
    timeout 60 "$MOED" run -n $N --ignore-end --temp 0 "Once upon a time" > "$WORK/got" 2>"$WORK/err" || { over; fail "no answer: $(cat "$WORK/err")"; }
    cmp -s "$WORK/want" "$WORK/got" || { over; fail "wrong tokens with a slow executor"; }
    ! given_up || break
    wait_until 10 attached || true
done
given_up || { over; fail "the worker never gave up the slow executor"; }
# While the circuit breaker is open, answers do not wait for the executor.
before=$(metric worker moed_worker_jobs_reclaimed_total)
timeout 60 "$MOED" run -n $N --ignore-end --temp 0 "Once upon a time" > "$WORK/got" || { over; fail "no answer afterwards"; }
reclaimed=$(($(metric worker moed_worker_jobs_reclaimed_total) - before))
over
cmp -s "$WORK/want" "$WORK/got" || fail "wrong tokens afterwards"
[ "$reclaimed" -le 6 ] || fail "the worker waited for $reclaimed jobs in $N tokens"
say "ok: $reclaimed jobs reclaimed in an answer of $N tokens"
