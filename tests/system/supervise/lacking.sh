#!/bin/bash
# The commands that wait for a process for which the device has no memory, or that was ready before and ends now: they say so, and give
# up after five starts in a row. `moed up` gives up where memd ends three times after it was ready. The daemons are stand-ins.
#   lacking.sh MOED SUPERVISE FAKE_DAEMON
MOED=$1 SUPERVISE=$2 FAKE=$3
. "$(dirname "$0")/../../deployment.sh"
mkdir -m 700 "$RUN" "$WORK/bin"
for name in memd cpuexec worker http; do ln -s "$FAKE" "$WORK/bin/moed-$name"; done
touch "$WORK/model"
script() { echo "$2" > "$RUN/script.$1"; }
starts() { grep -cx "start $1" "$RUN/events" || true; }
why='no device memory'
# refuses PROCESS NEED COMMAND...: `moed COMMAND` fails, because PROCESS ends at NEED starts, for $why.
refuses() {
    local process=$1 need=$2 before n
    before=$(starts "$process")
    shift 2
    timeout 60 "$MOED" "$@" >"$WORK/out" 2>&1 && fail "moed $*: $(cat "$WORK/out")"
    n=$(($(starts "$process") - before))
    grep -q "$process does not start: $why before it was ready: last words of $process" "$WORK/out" || fail "moed $*: $(cat "$WORK/out")"
    [ $n -ge "$need" ] || fail "moed $* gives up after $n starts"
}

# With fewer descriptors than it polls the supervisor ends; it used to spin, deaf to SIGTERM.
mkdir -m 700 "$WORK/few"
(ulimit -n 19; timeout -s KILL 10 "$SUPERVISE" --run "$WORK/few" --model "$WORK/model" --bindir "$WORK/bin" >/dev/null 2>&1) &&
    fail "a supervisor with 19 descriptors ends without an error"
grep -q "19 descriptors are allowed, but the supervisor needs" "$WORK/few/supervise.log" || fail "no word of the 19 descriptors"

script worker "exit 5"
"$SUPERVISE" --run "$RUN" --name test --model "$WORK/model" --bindir "$WORK/bin" --cpuexec >/dev/null 2>&1 &
wait_until 20 grep -qsx "ready memd" "$RUN/events"
refuses worker 5 restart worker
[ "$(grep -c "worker waits: no device memory" "$WORK/out")" = 1 ] || fail "moed restart does not say once what it waits for: $(cat "$WORK/out")"
refuses worker 0 workers 1
script memd "exit 5"
refuses memd 5 restart memd
refuses memd 0 restart worker # needs memd
refuses memd 5 upgrade
script memd serve
script worker serve
"$MOED" restart memd >/dev/null || fail "memd does not start when there is memory"
"$MOED" restart worker >/dev/null || fail "the worker does not start when there is memory"

why='exit status 1'
script worker "exit 1"
refuses worker 5 restart worker
refuses worker 0 workers 1
"$MOED" ps 2>&1 | grep -q ': worker does not start: exit status 1' || fail "ps does not say that the worker does not start: $("$MOED" ps 2>&1)"
script memd "exit 1"
refuses memd 5 restart memd
refuses memd 0 restart worker
refuses memd 5 upgrade
script memd serve
script worker serve
"$MOED" restart memd >/dev/null || fail "memd does not start again"
"$MOED" down >/dev/null 2>&1

# memd ends three times before it is ready, which is no reason to stop it once it serves. Then it is killed each time that it is ready, as
# by the kernel for lack of memory. The worker never is ready.
cp "$MOED" "$SUPERVISE" "$WORK/bin"
script worker hang
script memd 'exit 1'
rm "$RUN/events"
timeout 60 "$WORK/bin/moed" up "$(dirname "$0")/../../golden/olmoe.gguf" >"$WORK/out" 2>&1 &
up=$!
has_started() { [ "$(starts memd)" -ge "$1" ]; }
wait_until 20 has_started 3 || fail "memd does not start three times: $(cat "$WORK/out")"
script memd serve
is_ready() { [ "$(grep -cx "ready memd" "$RUN/events")" -ge "$1" ]; }
for i in 1 2 3; do
    wait_until 20 is_ready "$i" || fail "memd is not ready for the ${i}th time: $(cat "$WORK/out")"
    [ "$i" -gt 1 ] || sleep 0.5 # ten looks of moed up
    kill -0 $up 2>/dev/null || fail "moed up has stopped a deployment whose memd serves: $(cat "$WORK/out")"
    kill -KILL "$(pid_of memd)"
done
wait $up && fail "moed up waits for a deployment whose memd ends: $(cat "$WORK/out")"
grep -q "memd has ended 3 times before the deployment answered, the last time: killed by signal 9" "$WORK/out" || fail "moed up: $(cat "$WORK/out")"
say "ok: commands that wait for a process that does not start"
