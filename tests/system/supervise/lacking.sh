#!/bin/bash
# The commands that wait for a process for which the device has no memory: they say so, and give up after five starts in a row. The
# daemons are stand-ins.
#   lacking.sh MOED SUPERVISE FAKE_DAEMON
MOED=$1 SUPERVISE=$2 FAKE=$3
. "$(dirname "$0")/../../deployment.sh"
mkdir -m 700 "$RUN" "$WORK/bin"
for name in memd cpuexec worker http; do ln -s "$FAKE" "$WORK/bin/moed-$name"; done
touch "$WORK/model"
script() { echo "$2" > "$RUN/script.$1"; }
starts() { grep -cx "start $1" "$RUN/events" || true; }
# refuses PROCESS NEED COMMAND...: `moed COMMAND` fails, because PROCESS finds no memory at NEED starts.
refuses() {
    local process=$1 need=$2 before n
    before=$(starts "$process")
    shift 2
    timeout 60 "$MOED" "$@" >"$WORK/out" 2>&1 && fail "moed $*: $(cat "$WORK/out")"
    n=$(($(starts "$process") - before))
    grep -q "$process does not start: no device memory before it was ready: last words of $process" "$WORK/out" || fail "moed $*: $(cat "$WORK/out")"
    [ $n -ge "$need" ] || fail "moed $* gives up after $n starts"
}

script worker "exit 5"
"$SUPERVISE" --run "$RUN" --name test --model "$WORK/model" --bindir "$WORK/bin" --cpuexec >/dev/null 2>&1 &
wait_until 20 "$MOED" ps
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
say "ok: commands that wait for device memory"
