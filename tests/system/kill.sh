#!/bin/bash
# kill -9 of each process in the middle of an answer: the test checks what a client loses.
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"
"$MOED" up "$MODEL" --ctx 2048 --cpuexec --watchdog 5 >/dev/null 2>&1
N=1200
[ -z "${MOED_TEST_SHORT:-}" ] || N=300 # a sanitizer makes them slow
PROMPT="Once upon a time"
ask() { "$MOED" run -n $N --ignore-end --temp 0 "$PROMPT"; }
ask > "$WORK/reference" || fail "reference answer"
loaded=$(metric memd moed_memd_loaded_bytes_total)

# begin FILE: starts a request in the background and waits for its first bytes.
begin() {
    rm -f "$1" # else the wait below ends with the bytes of an earlier answer
    ask > "$1" 2> "$1.err" &
    ASKING=$!
    wait_until 20 test -s "$1" || fail "no answer began"
}

back() { "$MOED" ps | grep cpuexec | grep -q ready; }

say "cpuexec: the answer continues, with the same tokens"
for round in 1 2 3; do
    wait_until 20 back || fail "cpuexec was not restarted"
    begin "$WORK/answer"
    kill -9 "$(pid_of cpuexec)"
    wait $ASKING || fail "the answer was cut short when cpuexec died: $(cat "$WORK/answer.err")"
    cmp -s "$WORK/answer" "$WORK/reference" || fail "cpuexec's death changed the answer"
done
wait_until 20 back || fail "cpuexec was not restarted"
before=$(metric cpuexec moed_cpuexec_experts_total)
ask | cmp -s - "$WORK/reference" || fail "answer after cpuexec's restart"
[ "$(metric cpuexec moed_cpuexec_experts_total)" != "$before" ] || fail "the new cpuexec computes nothing"

say "cpuexec stopped: the worker reclaims its work"
begin "$WORK/answer"
stopped=$(pid_of cpuexec)
stop_process "$stopped"
wait $ASKING || fail "the answer was cut short when cpuexec stalled"
cmp -s "$WORK/answer" "$WORK/reference" || fail "cpuexec's stall changed the answer"
kill -CONT "$stopped" 2>/dev/null || true # the watchdog may have killed it

say "a client: its request ends, other requests continue"
begin "$WORK/answer"
other=$ASKING
"$MOED" run --ignore-end --temp 0 "for ever" > "$WORK/victim" &
victim=$!
wait_until 20 test -s "$WORK/victim" || fail "the victim got no answer"
kill -9 $victim
wait $other || fail "another client's death cut the answer short"
cmp -s "$WORK/answer" "$WORK/reference" || fail "another client's death changed the answer"
idle() { [ "$(metric worker moed_worker_requests_running)" = 0 ]; }
wait_until 10 idle || fail "the dead client's request still runs"

# whole WHO: waits for the answer under way, which has to be whole.
whole() {
    wait $ASKING || fail "the answer ended when $1 died: $(cat "$WORK/answer.err")"
    cmp -s "$WORK/answer" "$WORK/reference" || fail "the death of $1 changed the answer"
}

say "the worker: a new one continues the answer; no weight is read again, and the prompt is not computed again"
for round in 1 2 3; do
    begin "$WORK/answer"
    kill -9 "$(pid_of worker)"
    whole "the worker"
done
[ "$(metric memd moed_memd_loaded_bytes_total)" = "$loaded" ] || fail "weights were read again"
# The last answer may have been whole before the worker died: then this one is the new worker's first.
answers() { metric worker moed_worker_cached_prompt_tokens_total | grep -q .; }
wait_until 20 answers || fail "no new worker came"
begin "$WORK/answer"
whole nobody
cached=$(metric worker moed_worker_cached_prompt_tokens_total)
[ "$cached" -gt 0 ] || fail "the new worker found nothing in the KV cache"

say "the worker stopped: the watchdog kills it, and a new one continues the answer"
begin "$WORK/answer"
stop_process "$(pid_of worker)"
whole "the worker, stopped"
silent() { "$MOED" logs supervise | grep -q 'worker .* has been silent'; }
wait_until 20 silent || fail "the watchdog left a stopped worker alone"

say "memd: everything starts again, and the answer continues"
begin "$WORK/answer"
kill -9 "$(pid_of memd)"
whole memd

say "all at once"
wait_until 20 back || fail "cpuexec was not restarted"
begin "$WORK/answer"
for process in worker cpuexec memd; do kill -9 "$(pid_of $process)" 2>/dev/null || true; done
whole "all processes"

say "all at once, the supervisor too: the answer continues where the deployment is started again"
wait_until 20 back || fail "cpuexec was not restarted"
begin "$WORK/answer"
for process in supervise worker cpuexec memd; do kill -9 "$(pid_of $process)" 2>/dev/null || true; done
sleep 1 # a service manager's pause
start_deployment "$MODEL" --ctx 2048 --cpuexec
whole "all processes and the supervisor"
"$MOED" down >/dev/null

say "more answers than the queue takes: a new worker continues them all"
STREAMS=6
start_deployment "$MODEL" --ctx 2048 --parallel $STREAMS --queue 1
asking=()
for i in $(seq $STREAMS); do
    begin "$WORK/answer-$i"
    asking+=("$ASKING")
done
kill -9 "$(pid_of worker)"
for i in $(seq $STREAMS); do
    wait "${asking[$((i - 1))]}" || fail "answer $i ended when the worker died: $(cat "$WORK/answer-$i.err")"
    cmp -s "$WORK/answer-$i" "$WORK/reference" || fail "the worker's death changed answer $i"
done
say "ok"
