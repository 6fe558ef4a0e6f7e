#!/bin/bash
# What each dead process costs: kill -9 of each in the middle of answers.
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"
"$MOED" up "$MODEL" --ctx 2048 --cpuexec >/dev/null 2>&1
N=1200
PROMPT="Once upon a time"
ask() { "$MOED" run -n $N --ignore-end "$PROMPT"; }
ask > "$WORK/reference" || fail "reference answer"
loaded=$(metric memd moed_memd_loaded_bytes_total)

# begin FILE: an answer in the background, well under way.
begin() {
    rm -f "$1" # an earlier answer's bytes would look like this one's
    ask > "$1" 2> "$1.err" &
    ASKING=$!
    wait_until 20 test -s "$1" || fail "no answer began"
}

back() { "$MOED" ps | grep cpuexec | grep -q ready; }

say "cpuexec: the answer goes on, with the same tokens"
for round in 1 2 3; do
    wait_until 20 back || fail "cpuexec was not restarted"
    begin "$WORK/answer"
    kill -9 "$(pid_of cpuexec)"
    wait $ASKING || fail "the answer ended when cpuexec died: $(cat "$WORK/answer.err")"
    cmp -s "$WORK/answer" "$WORK/reference" || fail "cpuexec's death changed the answer"
done
wait_until 20 back || fail "cpuexec was not restarted"
before=$(metric cpuexec moed_cpuexec_experts_total)
ask | cmp -s - "$WORK/reference" || fail "answer after cpuexec's restart"
[ "$(metric cpuexec moed_cpuexec_experts_total)" != "$before" ] || fail "the new cpuexec computes nothing"

say "cpuexec stopped: its work is taken back"
begin "$WORK/answer"
stopped=$(pid_of cpuexec)
kill -STOP "$stopped"
wait $ASKING || fail "the answer ended when cpuexec stalled"
cmp -s "$WORK/answer" "$WORK/reference" || fail "cpuexec's stall changed the answer"
kill -CONT "$stopped"

say "a client: its request ends, nobody else notices"
begin "$WORK/answer"
other=$ASKING
"$MOED" run --ignore-end "for ever" > "$WORK/victim" &
victim=$!
wait_until 20 test -s "$WORK/victim" || fail "the victim got no answer"
kill -9 $victim
wait $other || fail "another client's death ended the answer"
cmp -s "$WORK/answer" "$WORK/reference" || fail "another client's death changed the answer"
idle() { [ "$(metric worker moed_worker_requests_running)" = 0 ]; }
wait_until 5 idle || fail "the dead client's request still runs"

say "the worker: clients get an error that says retry; a new one answers, no weight is read again"
begin "$WORK/answer"
kill -9 "$(pid_of worker)"
start=$(date +%s%N)
set +e; wait $ASKING; code=$?; set -e
[ $code -eq 1 ] || fail "the client's exit code is $code, expected 1"
grep -qi 'again' "$WORK/answer.err" || fail "no word of retrying: $(cat "$WORK/answer.err")"
wait_until 20 "$MOED" run -n 1 "x" || fail "no new worker answers"
say "  a new worker answered after $(( ($(date +%s%N) - start) / 1000000 )) ms"
ask | cmp -s - "$WORK/reference" || fail "answer after the worker's restart"
[ "$(metric memd moed_memd_loaded_bytes_total)" = "$loaded" ] || fail "weights were read again"

say "memd: everything restarts by itself and answers"
begin "$WORK/answer"
kill -9 "$(pid_of memd)"
set +e; wait $ASKING; set -e
wait_until 60 "$MOED" run -n 1 "x" || fail "no answer after memd's death"
ask | cmp -s - "$WORK/reference" || fail "answer after memd's restart"

say "all at once"
for process in worker cpuexec memd; do kill -9 "$(pid_of $process)" 2>/dev/null || true; done
wait_until 60 "$MOED" run -n 1 "x" || fail "no answer after all had died"
ask | cmp -s - "$WORK/reference" || fail "answer after all had died"
say "ok"
