#!/bin/bash
# 64 HTTP clients while each process is killed again and again. usage: storm.sh MOED MODEL [SECONDS]   (by hand: 60)
MOED=$1 MODEL=$2 SECONDS_LONG=${3:-60}
. "$(dirname "$0")/../deployment.sh"
command -v python3 > /dev/null || skip "python3 is not here"
"$MOED" up "$MODEL" --ctx 512 --cpuexec --parallel 32 --queue 500 --http 127.0.0.1:0 > "$WORK/up" 2>&1 || fail "no deployment: $(cat "$WORK/up")"
port=$(port_of "$RUN/http.log")
python3 "$(dirname "$0")/http_storm.py" "$port" "$RUN" "$SECONDS_LONG" || fail "see above"
say ok
