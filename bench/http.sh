#!/bin/bash
# Measures what HTTP adds to libmoed: time to first text and between texts of 64 streams, alternately in one run; then what 1000
# waiting streams cost moed-http. Prints the load of the machine before and after: with other work on it the 99th percentiles are noise.
#   http.sh BUILD MODEL [-r ROUNDS] [-s STREAMS] [-i IDLE]
set -eu
MOED=$1/client/moed BENCH=$1/bench/bench-http MODEL=$2
shift 2
ROUNDS=10 STREAMS=64 IDLE=1000
while getopts r:s:i: option; do
    case $option in r) ROUNDS=$OPTARG ;; s) STREAMS=$OPTARG ;; i) IDLE=$OPTARG ;; *) exit 2 ;; esac
done
. "$(dirname "$0")/../tests/deployment.sh"
"$MOED" up "$MODEL" --ctx 1024 --parallel "$STREAMS" --queue 4000 --http 127.0.0.1:0 > /dev/null 2>&1 || fail "no deployment with --http"
port=$(sed -n 's/.*listening at http:.*:\([0-9]*\)$/\1/p' "$RUN/http.log" | tail -n 1)
ulimit -n "$(ulimit -H -n)"
say "load before: $(cut -d' ' -f1-3 /proc/loadavg), $(nproc) cores"
"$BENCH" --port "$port" --rounds "$ROUNDS" --streams "$STREAMS" --idle "$IDLE" --http "$(pid_of http)" --worker "$(pid_of worker)"
say "load after: $(cut -d' ' -f1-3 /proc/loadavg)"
