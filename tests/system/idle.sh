#!/bin/bash
# An idle deployment leaves the processor alone: all its threads together sleep and wake up fewer than 40 times a second, which
# takes less than 0.1 % of a core. The count does not depend on the machine's load.
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"
start_deployment "$MODEL" --device emu:vram=30%,link=400M --http 0
"$MOED" run -n 4 hi >/dev/null
SECONDS_COUNTED=4 MOST=40
# Wake-ups of all threads of the deployment.
wakes() { cat /proc/"$(pid_of memd)"/task/*/status /proc/"$(pid_of worker)"/task/*/status /proc/"$(pid_of cpuexec)"/task/*/status \
    /proc/"$(pid_of http)"/task/*/status /proc/"$(pid_of supervise)"/task/*/status | awk '/^voluntary_ctxt_switches/ { n += $2 } END { print n }'; }
quiet() {
    before=$(wakes) began=$(date +%s%N)
    sleep $SECONDS_COUNTED
    rate=$(( ($(wakes) - before) * 1000000000 / ($(date +%s%N) - began) ))
    [ $rate -lt $MOST ]
}
for i in $(seq 12); do # it calms down in the first seconds
    ! quiet || { say "ok: $rate wake-ups a second"; exit 0; }
done
fail "an idle deployment wakes up $rate times a second, at most $MOST are expected"
