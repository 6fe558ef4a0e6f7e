#!/bin/bash
# The daemons send an error to a peer that misbehaves, or drop it. Another client's request, which runs at the same time, continues
# unchanged.
MOED=$1 MODEL=$2 HOSTILE=$3
. "$(dirname "$0")/../deployment.sh"
"$MOED" up "$MODEL" --cpuexec >/dev/null 2>&1
# The daemons have given up system calls (lib/confine); builds with sanitizers keep them.
for process in memd worker cpuexec; do
    [ -n "${MOED_SANITIZED:-}" ] || grep -q '^Seccomp:[[:space:]]*2' "/proc/$(pid_of $process)/status" || fail "$process is not confined"
done
ask() { "$MOED" run -n 1200 --ignore-end --temp 0 "Once upon a time"; }
ask > "$WORK/reference"
pids="$(pid_of memd) $(pid_of worker) $(pid_of cpuexec)"
ask > "$WORK/answer" &
asking=$!
"$HOSTILE" "$RUN" || fail "the hostile client"
wait $asking || fail "the answer was cut short"
cmp -s "$WORK/answer" "$WORK/reference" || fail "the answer changed"
[ "$pids" = "$(pid_of memd) $(pid_of worker) $(pid_of cpuexec)" ] || fail "a process died"
ask | cmp -s - "$WORK/reference" || fail "the answer afterwards changed"
say "ok"
