#!/bin/bash
# Measures restarts of workers on a CUDA device with all experts resident: seconds from kill -9 of the worker to the first token of
# the next request, and from the start of a second worker on the same memd to its first token. The script fails if either copies a
# byte of weights, and at its end if an answer had other tokens than with --device host.
#   cuda_restart.sh MOED MODEL [-d DEVICE] [-r RUNS] [-n TOKENS]
# The times include the supervisor's delay before a restart: 0.1 s after the first death, twice as long after each one soon after.
# On the simulated device the script checks everything and prints no time.
MOED=$1 MODEL=$2
shift 2
DEVICE=cuda:0 RUNS=3 TOKENS=32 ASK_SECONDS=60
while getopts d:r:n: option; do
    case $option in
    d) DEVICE=$OPTARG ;; r) RUNS=$OPTARG ;; n) TOKENS=$OPTARG ;;
    *) exit 2 ;;
    esac
done
. "$(dirname "$0")/../tests/deployment.sh"
. "$(dirname "$0")/decode_figures.sh"
export MOED_DEVICE_POISON=1
# shellcheck disable=SC2034 # ask_all's
prompts=("Once upon a time" "int main(void) {" "0 1 2 3")
# shellcheck disable=SC2153 # deployment.sh's
FIRST=$RUN
SECOND=$WORK/second # another worker's runtime directory: its own sockets, memd's and cpuexec's of the first

up() { "$MOED" up "$MODEL" --speculate off --reproducible --ctx 512 "$@" >/dev/null 2>"$WORK/up" || { cat "$WORK/up" >&2; fail "up $*"; }; }
check() { ask_all "$TOKENS" got; same got want "$1"; }
all_there() { [ "$(policy_field free)" = 0 ] && [ "$(policy_field filling)" = 0 ]; }
# What was copied to the device, and what was read from the file.
bytes_moved() {
    "$MOED" metrics memd | awk '$1 ~ /^moed_memd_(copied_bytes_total|link_bytes_total|loaded_bytes_total)/ { print }'
}
seconds_since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.3f\n", b - a }'; }
answers() { "$MOED" run -n 1 --ignore-end --temp 0 x; }

up --device host
ask_all "$TOKENS" want
"$MOED" down >/dev/null 2>&1
# Every expert is copied once, and no other place computes one.
up --device "$DEVICE" --policy layerwise
if ! wait_until 60 all_there; then
    [ $SIMULATED = no ] || fail "not everything comes: $("$MOED" policy --json)"
    skip "not all experts fit the device: --model a smaller one"
fi
check "before"
memd=$(pid_of memd)
bytes_moved >"$WORK/moved"
awk '/copied/ { n += $2 } END { exit !n }' "$WORK/moved" || fail "nothing was copied: nothing is tested"

for ((run = 0; run < RUNS; run++)); do
    worker=$(pid_of worker)
    "$MOED" run -n 400 --ignore-end --temp 0 x >/dev/null 2>&1 & running=$! # it dies at work
    sleep 0.2
    since=$EPOCHREALTIME
    kill -9 "$worker" || fail "no worker to kill"
    answers >/dev/null || fail "no answer after the worker died"
    seconds_since "$since" >>"$WORK/restart"
    wait $running || true
    [ "$(pid_of worker)" != "$worker" ] || fail "the worker did not die"
    # where what follows takes too long
    [ $SIMULATED = yes ] || echo "figure so far: first token $(median "$WORK/restart" 1) s after the worker's death (goal 2)"
    check "after the worker died"
done
[ "$(pid_of memd)" = "$memd" ] || fail "memd did not stay"
bytes_moved | diff "$WORK/moved" - >&2 || fail "a new worker made memd copy or load"
say "ok: the worker was killed $RUNS times, nothing was copied again"

# The same program with the same options.
mkdir -m 700 "$SECOND"
for socket in memd.lease memd.ctl memd.peers cpuexec.lease; do ln -s "$FIRST/$socket" "$SECOND/$socket"; done
mapfile -d '' -t command <"/proc/$(pid_of worker)/cmdline"
for i in "${!command[@]}"; do [ "${command[$i]}" != "$FIRST" ] || command[i]=$SECOND; done
leases=$(metric memd moed_memd_leases)
since=$EPOCHREALTIME
"${command[@]}" 2>"$SECOND/worker.log" &
second=$!
ready() { MOED_RUN=$SECOND "$MOED" metrics worker; }
wait_until 30 ready || { cat "$SECOND/worker.log" >&2; fail "a second worker does not start"; }
(MOED_RUN=$SECOND answers >/dev/null) || fail "no answer of a second worker"
seconds_since "$since" >"$WORK/attach"
[ "$(metric memd moed_memd_leases)" = $((leases + 1)) ] || fail "memd lends to as many as before"
# both at once
(export MOED_RUN=$SECOND WORK=$SECOND; ask_all "$TOKENS" got) & asking=$!
check "beside a second worker"
wait $asking || fail "answers of a second worker"
cp "$SECOND/got" "$WORK/got-second"
same got-second want "a second worker"
bytes_moved | diff "$WORK/moved" - >&2 || fail "a second worker made memd copy or load"
kill -9 $second
wait $second 2>/dev/null || true
check "after a second worker died"
gone() { [ "$(metric memd moed_memd_leases)" = "$leases" ] && slots_add_up; }
wait_until 10 gone || fail "the second worker's lease or slots stay: $("$MOED" policy --json)"
say "ok: a second worker on the same memd, nothing was copied again"

if [ $SIMULATED = no ]; then
    echo "| event | seconds to the next first token, median (least-most) | goal |"
    echo "|---|---|---|"
    restart=$(median "$WORK/restart" 1) attach=$(cat "$WORK/attach")
    echo "| kill -9 of the worker, $RUNS times | $restart ($(sort -g "$WORK/restart" | sed -n '1p;$p' | paste -sd -)) | 2 |"
    echo "| a second worker on the same memd | $attach | 1 |"
    echo "figure: first token $restart s after the worker's death (goal 2), $attach s of a second worker (goal 1); 0 bytes copied"
fi
all_same
