#!/bin/bash
# A log that grows while its process runs is renamed to .1 once it has 10 MB, and the process goes on in a new one; every line is whole, and none
# is lost. Answered probes are lines of level debug. usage: log_rotation.sh MOED MODEL
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"
command -v python3 > /dev/null || skip "python3 is not here"
start_deployment "$MODEL" --http 127.0.0.1:0 --kv-cache 64M --watchdog 4
URL=http://127.0.0.1:$(cat "$RUN/http.port")
# ask PATH N: N requests, one after the other.
ask() { python3 -c 'import sys, urllib.request
for i in range(int(sys.argv[2])): urllib.request.urlopen(sys.argv[1]).read()' "$URL$1" "$2" || fail "$1"; }
lines() { cat "$RUN"/http.log "$RUN"/http.log.1 2> /dev/null | tr -d '\0' | grep -c "GET /v1/models 200 ok .*bytes=[0-9]* client=127.0.0.1\$"; }

ask /health 3
ask /livez 3
ask /metrics 3
ask /v1/models 1
has_line() { [ "$(lines)" = 1 ]; }
wait_until 10 has_line || fail "the access log has no line"
! grep -q 'GET /health\|GET /livez\|GET /metrics' "$RUN/http.log" || fail "the access log has a line for each probe"

"$MOED" logs http -f > "$WORK/followed" &
FOLLOWER=$!
end_all() {
    status=$?
    set +e
    kill $FOLLOWER 2> /dev/null || true
    (exit $status)
    end
}
trap end_all EXIT
followed() { grep -c "GET /v1/models 200 ok .*bytes=[0-9]* client=127.0.0.1\$" "$WORK/followed"; }
follows() { [ "$(followed)" = $asked ]; }
asked=1
wait_until 10 follows || fail "moed logs -f prints no line"

say "logs of 11 MB are renamed while requests write lines"
for process in http memd worker supervise; do yes "$(printf '%0999d' 0)" | head -c 11000000 >> "$RUN/$process.log"; done
renamed() { [ -e "$RUN/http.log.1" ] && [ -e "$RUN/memd.log.1" ] && [ -e "$RUN/worker.log.1" ] && [ -e "$RUN/supervise.log.1" ]; }
until renamed; do
    ask /v1/models 20
    asked=$(( asked + 20 ))
    [ $asked -lt 40000 ] || fail "a log is not renamed: $(ls -l "$RUN")"
done
has_new_log() { [ "$(stat -L -c %i "/proc/$(pid_of "$1")/fd/2" 2> /dev/null)" = "$(stat -c %i "$RUN/$1.log")" ]; }
moved_on() { ask /v1/models 5; asked=$(( asked + 5 )); grep -q 'GET /v1/models 200' "$RUN/http.log"; }
wait_until 20 moved_on || fail "moed-http does not use the new log"
for process in memd worker supervise; do
    # only root may look at a confined process
    [ ! -r "/proc/$(pid_of "$process")/fd" ] || [ "$(id -u)" -ne 0 ] || wait_until 10 has_new_log $process || fail "$process does not use the new log"
done
ask /v1/models 10
asked=$(( asked + 10 ))
complete() { [ "$(lines)" = $asked ]; }
wait_until 10 complete || fail "$(lines) of $asked lines are there"
[ "$(stat -c %s "$RUN/http.log")" -lt 10000000 ] || fail "the new log is as long"
wait_until 10 follows || fail "moed logs -f prints $(followed) of $asked lines"
kill $FOLLOWER
# of each file the last 8 MB: without the first request
[ "$("$MOED" logs http --since 1d | grep -c 'GET /v1/models 200')" = $(( asked - 1 )) ] || fail "moed logs --since leaves lines out"
say ok
