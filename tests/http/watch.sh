#!/bin/bash
# The placement map over HTTP: where each expert is and how often it is used, as events; policy and memory with an admin key;
# the same from `moed map --json`. usage: watch.sh MOED MODEL
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"
command -v python3 > /dev/null || skip "python3 is not here"

# Without an admin key nobody may change anything; without API keys everybody may look.
"$MOED" up "$MODEL" --ctx 256 --device emu:vram=30%,link=1G --threads 1 --http 127.0.0.1:0 > /dev/null 2>&1 || fail "no deployment"
python3 - "$(port_of "$RUN/http.log")" << 'END' || fail "a deployment can be changed without an admin key"
import http.client
import sys
for path, status in (("/moed/policy", 403), ("/moed/resize", 403)):
    c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
    c.request("POST", path, '{"policy": "lru", "device_bytes": 1000000}')
    reply = c.getresponse()
    assert reply.status == status and b"--admin-key-file" in reply.read(), path
END
"$MOED" down > /dev/null

printf 'alice secret-of-alice\n' > "$WORK/keys"
printf 'boss secret-of-boss\n' > "$WORK/admin"
chmod 600 "$WORK/keys" "$WORK/admin"
with_keys=(--http 127.0.0.1:0 --api-key-file "$WORK/keys" --admin-key-file "$WORK/admin")
"$MOED" up "$MODEL" --ctx 256 --device emu:vram=30%,link=1G --parallel 3 --threads 1 "${with_keys[@]}" > /dev/null 2>&1 || fail "no deployment with an admin key"
python3 "$(dirname "$0")/http_watch.py" "$(port_of "$RUN/http.log")" "$MOED" secret-of-alice secret-of-boss "$(pid_of worker)" || fail "see above"
grep -q 'POST /moed/policy 200 ok key=boss model=demo' "$RUN/http.log" || fail "the access log does not name the admin key"
! grep -q secret-of "$RUN/http.log" || fail "a key is in the log"

# A deployment without a device cache, with a part of the experts in the file only.
"$MOED" up "$MODEL" --ctx 256 --ram 50% --threads 1 "${with_keys[@]}" > /dev/null 2>&1 || fail "no deployment without a device"
python3 "$(dirname "$0")/http_watch.py" "$(port_of "$RUN/http.log")" "$MOED" secret-of-alice secret-of-boss || fail "see above"

# A withdrawn key keeps no stream.
"$MOED" up "$MODEL" --ctx 256 --threads 1 "${with_keys[@]}" > /dev/null 2>&1 || fail "no deployment for a key that is withdrawn"
cat > "$WORK/watch.py" << 'END'
import http.client, sys
c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
c.request("GET", "/moed/events", headers={"x-api-key": "secret-of-alice"})
reply = c.getresponse()
while line := reply.readline():
    print(line.decode().strip()[:80], flush=True)
END
python3 "$WORK/watch.py" "$(port_of "$RUN/http.log")" > "$WORK/events" 2>&1 & watcher=$!
wait_until 30 grep -q 'event: map' "$WORK/events" || fail "no events: $(cat "$WORK/events")"
printf 'bob secret-of-bob\n' > "$WORK/keys"
stream_has_ended() { ! kill -0 $watcher 2> /dev/null; }
wait_until 30 stream_has_ended || { kill $watcher; fail "a stream goes on without its key"; }
grep -q 'keys .*have changed' "$WORK/events" || fail "the stream does not say why it ends: $(tail -n 5 "$WORK/events")"
say ok
