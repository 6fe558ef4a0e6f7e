#!/bin/bash
# Measures what it costs to compute experts in a process of their own: decode speed of one loaded model with cpuexec, and with the
# worker computing them (it does where there is no cpuexec). Both in turn; medians and the median of the ratios.
#   processes.sh BUILD MODEL [-r RUNS] [-n TOKENS] [-t THREADS] [-x "OPTIONS"] [-p "COMMAND"]
# -x: further options of worker and cpuexec, such as --no-pin.
# -p: run the programs under COMMAND, such as "chrt -f 1" on a machine that is used by others.
set -eu
BUILD=$1 MODEL=$2
shift 2
RUNS=9 TOKENS=128 THREADS=0 PRIORITY= EXTRA=
while getopts r:n:t:p:x: option; do
    case $option in
    r) RUNS=$OPTARG ;; n) TOKENS=$OPTARG ;; t) THREADS=$OPTARG ;; p) PRIORITY=$OPTARG ;; x) EXTRA=$OPTARG ;;
    *) exit 2 ;;
    esac
done
WORK=$(mktemp -d)
export MOED_RUN=$WORK/run
mkdir -m 700 "$MOED_RUN"
MEMD= WORKER= CPUEXEC=
trap 'kill $CPUEXEC $WORKER $MEMD 2>/dev/null || true; wait; rm -rf "$WORK"' EXIT

wait_for() { # wait_for LOG TEXT COUNT: until the log has COUNT lines with TEXT
    for _ in $(seq 600); do
        [ "$(grep -c "$2" "$WORK/$1.log" || true)" -ge "$3" ] && return
        sleep 0.1
    done
    echo "processes.sh: no line '$2' in the log of $1:" >&2
    tail -3 "$WORK/$1.log" >&2
    exit 1
}
answer() { # prints tokens a second of decoding
    "$BUILD/client/moed" run -n "$TOKENS" --ignore-end --temp 0 --json "The weather in the mountains" |
        tr '{,}' '\n' | awk -F: -v n="$TOKENS" '/"decode_s"/ { printf "%.3f\n", (n - 1) / $2 }'
}
median() { sort -g "$1" | awk '{ v[NR] = $1 } END { printf "%.1f", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

$PRIORITY "$BUILD/memd/moed-memd" --run "$MOED_RUN" --model "$MODEL" 2> "$WORK/memd.log" &
MEMD=$!
wait_for memd "ready after" 1
$PRIORITY "$BUILD/worker/moed-worker" --run "$MOED_RUN" --speculate off --cpuexec --threads "$THREADS" $EXTRA 2> "$WORK/worker.log" &
WORKER=$!
wait_for worker "ready after" 1
for i in $(seq "$RUNS"); do
    $PRIORITY "$BUILD/cpuexec/moed-cpuexec" --run "$MOED_RUN" --threads "$THREADS" $EXTRA 2>> "$WORK/cpuexec.log" &
    CPUEXEC=$!
    wait_for worker "cpuexec attached" "$i"
    [ "$i" -gt 1 ] || answer > /dev/null # warms up
    answer >> "$WORK/apart"
    kill $CPUEXEC
    wait $CPUEXEC || true
    CPUEXEC=
    wait_for worker "cpuexec has gone" "$i"
    [ "$i" -gt 1 ] || answer > /dev/null
    answer >> "$WORK/together"
done
paste "$WORK/apart" "$WORK/together" | awk '{ print $1 / $2 }' > "$WORK/ratio"
echo "$(basename "$MODEL"), $TOKENS tokens, medians of $RUNS runs: with cpuexec $(median "$WORK/apart") tokens/s," \
    "inside the worker $(median "$WORK/together"), ratio $(sort -g "$WORK/ratio" | awk '{ v[NR] = $1 } END { printf "%.3f", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }')"
