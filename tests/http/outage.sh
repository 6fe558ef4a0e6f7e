#!/bin/bash
# What /metrics?process=all and the alerts on it show where processes are silent or have failed. usage: outage.sh MOED MODEL
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"
command -v python3 > /dev/null || skip "python3 is not here"
here=$(dirname "$0")

cp "$MODEL" "$WORK/model.gguf"
start_deployment "$WORK/model.gguf" --ctx 512 --workers 2 --parallel 1 --queue 2 --device emu:vram=50%,link=1G --watchdog 0 --http 127.0.0.1:0
port=$(port_of "$RUN/http.log")
python3 "$here/http_outage.py" "$port" "$RUN" "$here/../../deploy/monitoring/alerts.yml" "$WORK/model.gguf" || fail "see above"
say ok
