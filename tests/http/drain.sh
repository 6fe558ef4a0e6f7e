#!/bin/bash
# `moed serve --drain S`: SIGTERM lets a stream end, also one that needs longer than the supervisor's other limits. Ctrl-C after it ends it.
# `moed down` says that it waits, and --now ends it.
# usage: drain.sh MOED MODEL
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"
command -v python3 > /dev/null || skip "python3 is not here"
cat > "$WORK/stream.py" << 'END'
import sys, urllib.request
body = b'{"prompt": "Once upon a time", "max_tokens": 8000, "ignore_eos": true, "stream": true}'
reply = urllib.request.urlopen(urllib.request.Request("http://127.0.0.1:%s/v1/completions" % sys.argv[1], body), timeout=120)
for line in reply:
    if line.startswith(b"data:"):
        print(line.decode().strip(), flush=True)
END

# serve S: starts the deployment, and a stream whose worker is stopped after the first tokens.
serve() {
    rm -f "$WORK/out" "$WORK/stream" "$RUN/supervise.log" "$RUN/http.log" # of the call before: they would end the waits below
    "$MOED" serve "$MODEL" --http 127.0.0.1:0 --ctx 8192 --watchdog 0 --drain "$1" >"$WORK/out" 2>"$WORK/err" & serving=$!
    wait_until 30 grep -q 'serving HTTP' "$WORK/out" || fail "serve: $(cat "$WORK/err")"
    port=$(sed -n 's|^serving HTTP at http://127.0.0.1:\([0-9]*\).*|\1|p' "$WORK/out")
    worker=$(pid_of worker)
    python3 "$WORK/stream.py" "$port" >"$WORK/stream" 2>"$WORK/stream.err" & stream=$!
    wait_until 30 test -s "$WORK/stream" || fail "no stream: $(cat "$WORK/stream.err")"
    stop_process "$worker"
}
no_http() { ! kill -0 "$http"; }

serve 600
http=$(pid_of http)
kill -TERM $serving
sleep 13 # more than http's default and than the supervisor's --stop-timeout
kill -TERM $serving # and a second one, as from a service manager
sleep 1
kill -CONT "$worker"
wait $stream || fail "the stream was cut: $(cat "$WORK/stream.err")"
tail -n 1 "$WORK/stream" | grep -q 'DONE' || fail "the stream was cut: $(tail -n 2 "$WORK/stream")"
wait $serving || fail "serve ends with $?: $(cat "$WORK/err")"
! grep -q 'killing it' "$RUN/supervise.log" || fail "the supervisor killed a process: $(cat "$RUN/supervise.log")"

serve 3600
http=$(pid_of http)
kill -INT $serving
wait_until 20 grep -q 'stopping all' "$RUN/supervise.log" || fail "the supervisor does not stop"
wait_until 20 grep -q 'http Interrupt: stopping\|http Terminated: stopping' "$RUN/http.log" || fail "http does not stop"
kill -INT $serving
wait_until 30 no_http || fail "http waits after a second Ctrl-C"
kill -CONT "$worker" 2>/dev/null || true
wait $serving || fail "serve ends with $? after two Ctrl-C: $(cat "$WORK/err")"
serve 3600
"$MOED" down 2>"$WORK/down.err" & down=$!
wait_until 30 grep -q 'waits for answers' "$WORK/down.err" || fail "moed down does not say what it waits for: $(cat "$WORK/down.err")"
"$MOED" down --now >"$WORK/now" 2>&1 & now=$!
wait_until 30 grep -q 'stopping at once' "$RUN/http.log" || fail "http waits after moed down --now"
kill -CONT "$worker" 2>/dev/null || true
wait $now || fail "moed down --now: $(cat "$WORK/now")"
wait $down || fail "moed down: $(cat "$WORK/down.err")"
wait $serving || fail "serve ends with $? after moed down --now: $(cat "$WORK/err")"
say "ok: streams end before the deployment does"
