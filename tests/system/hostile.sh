#!/bin/bash
# Peers that misbehave get an error or are dropped, and harm nobody else: an answer goes on unchanged meanwhile.
MOED=$1 MODEL=$2 HOSTILE=$3
. "$(dirname "$0")/../deployment.sh"
"$MOED" up "$MODEL" --cpuexec >/dev/null 2>&1
ask() { "$MOED" run -n 1200 --ignore-end "Once upon a time"; }
ask > "$WORK/reference"
pids="$(pid_of memd) $(pid_of worker) $(pid_of cpuexec)"
ask > "$WORK/answer" &
asking=$!
"$HOSTILE" "$RUN" || fail "the hostile client"
wait $asking || fail "the answer ended"
cmp -s "$WORK/answer" "$WORK/reference" || fail "the answer changed"
[ "$pids" = "$(pid_of memd) $(pid_of worker) $(pid_of cpuexec)" ] || fail "a process died"
ask | cmp -s - "$WORK/reference" || fail "the answer afterwards changed"
say "ok"
