#!/bin/bash
# The metrics of each process, and of all together, are well-formed text: by a checker of our own, or by Prometheus' promtool.
# usage: metrics.sh MOED MODEL own|promtool
MOED=$1 MODEL=$2 CHECKER=$3
. "$(dirname "$0")/../deployment.sh"
here=$(dirname "$0")
command -v python3 > /dev/null || skip "python3 is not here"
[ "$CHECKER" = own ] || command -v promtool > /dev/null || skip "promtool is not here (package prometheus)"

check() { # check NAME < TEXT
    case $CHECKER in
        own) python3 "$here/metrics_text.py" "$1" ;;
        promtool) promtool check metrics > "$WORK/said" 2>&1 || { sed "s/^/$1: /" "$WORK/said" >&2; false; } ;;
    esac
}
check_all() {
    for process in memd worker cpuexec http ""; do
        "$MOED" metrics ${process:+"$process"} > "$WORK/text" || fail "no metrics of ${process:-all}"
        check "${process:-all}" < "$WORK/text" || fail "metrics of ${process:-all} processes $1"
    done
    for path in /metrics '/metrics?process=all'; do
        python3 "$here/http_get.py" "$port" "$path" --body > "$WORK/text"
        check "$path" < "$WORK/text" || fail "GET $path $1"
    done
}

"$MOED" up "$MODEL" --ctx 512 --device emu:vram=50%,link=1G --http 127.0.0.1:0 > "$WORK/up" 2>&1 || fail "no deployment: $(cat "$WORK/up")"
port=$(port_of "$RUN/http.log")
# The first request of all: Prometheus may be the only client.
python3 "$here/http_get.py" "$port" '/metrics?process=all' --body | grep -q '^moed_worker_requests_running' || fail "the first page lacks the worker"
check_all "before any request"
"$MOED" run -n 20 --ignore-end "Once upon a time" > /dev/null
python3 "$here/http_get.py" "$port" /v1/models --body | grep -q '"data"' || fail "no models"
check_all "after requests"
say ok
