#!/bin/bash
# A CPU executor that goes on and on, and does not end: its work is taken back, and it is left alone for a while. The answer is
# right. (One that stops altogether, or dies: kill.sh.)
#   slow_executor.sh MOED MODEL SLOW_EXECUTOR
MOED=$1 MODEL=$2 SLOW=$3
. "$(dirname "$0")/../deployment.sh"
N=60
ask() { "$MOED" run -n $N --ignore-end --temp 0 "Once upon a time"; }

"$MOED" up "$MODEL" --reproducible >/dev/null 2>&1 || fail "up on the host"
ask > "$WORK/want"
"$MOED" down >/dev/null
# all of it in little time on the CPU, so that a second is far more than a job should take
"$MOED" up "$MODEL" --reproducible --device emu:vram=30%,link=400M --policy layerwise >/dev/null 2>&1 || fail "up"
ask > "$WORK/got"
cmp -s "$WORK/want" "$WORK/got" || fail "wrong tokens"
stopped=$(pid_of cpuexec)
kill -STOP "$stopped"
"$SLOW" "$RUN" > "$WORK/slow" 2>&1 & slow=$!
wait_until 5 grep -q listening "$WORK/slow" || fail "$(cat "$WORK/slow")"
over() { kill -CONT "$stopped" 2>/dev/null || true; kill "$slow" 2>/dev/null || true; }
attached() { [ "$(grep -c "cpuexec attached" "$RUN/worker.log")" -ge 2 ]; }
given_up() { grep -q "cpuexec takes .* for what should take" "$RUN/worker.log"; }
# the first answer gives up the one that is stopped, those after it meet the slow one
for ((i = 0; i < 20; i++)); do
    timeout 60 "$MOED" run -n $N --ignore-end --temp 0 "Once upon a time" > "$WORK/got" 2>"$WORK/err" || { over; fail "no answer: $(cat "$WORK/err")"; }
    cmp -s "$WORK/want" "$WORK/got" || { over; fail "wrong tokens beside a slow executor"; }
    ! given_up || break
    wait_until 5 attached || true
done
given_up || { over; fail "the slow executor was never given up"; }
# While it is left alone answers do not wait for it.
before=$(metric worker moed_worker_jobs_taken_back_total)
timeout 60 "$MOED" run -n $N --ignore-end --temp 0 "Once upon a time" > "$WORK/got" || { over; fail "no answer afterwards"; }
taken=$(($(metric worker moed_worker_jobs_taken_back_total) - before))
over
cmp -s "$WORK/want" "$WORK/got" || fail "wrong tokens afterwards"
[ "$taken" -le 6 ] || fail "$taken jobs of $N tokens were waited for"
say "ok: $taken jobs waited for in an answer of $N tokens"
