#!/bin/bash
# moed-http by raw sockets: answers, streams, errors, clients that leave or do not read, hostile framing; then API keys,
# TLS, a unix socket, and a frontend and a worker that die. usage: wire.sh MOED MODEL
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"
command -v python3 > /dev/null || skip "python3 is not here"
here=$(dirname "$0")
http=$(dirname "$MOED")/moed-http

# get PORT PATH [HEADER]: the status, over plain HTTP.
get() { python3 "$here/http_get.py" "$@"; }

cat > "$WORK/http.conf" << END
header-timeout = 2
stream-bytes = 12000
bodies-bytes = 1000000
cors-origins = https://listed.example
log-format = json
answers = 40
END
"$MOED" up "$MODEL" --ctx 4096 --http 127.0.0.1:0 --alias sonnet,opus=demo --alias lost=gone --http-config "$WORK/http.conf" > /dev/null 2>&1 || fail "no deployment with --http"
port=$(port_of "$RUN/http.log")
python3 "$here/http_wire.py" "$port" "$MOED" "$(pid_of http)" || fail "see above"

# One line a request, as JSON, with the tokens and without any text.
grep '"path":"/v1/completions","status":200' "$RUN/http.log" | head -n 1 | grep -q '"tokens_in":' || fail "no access log"
! grep -qi 'once upon' "$RUN/http.log" || fail "the log has a prompt"
get "$port" /v1/models "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" > /dev/null
wait_until 10 grep -q '"trace":"0af7651916cd43dd8448eb211c80319c"' "$RUN/http.log" || fail "traceparent is not in the log"

[ "$(tail -n +3 "$RUN/http.log" | grep -cv '^{"time":"20.*}$')" -eq 0 ] || fail "lines of the log are not JSON"
[ "$(grep -c "refused a page of 'http://evil.example'.*--cors-origins" "$RUN/http.log")" = 1 ] || fail "the log does not have the first refused page once"
! grep -q "refused a page of 'null'" "$RUN/http.log" || fail "the log has every refused page"

# A port that another program has: said at once, with what to do.
code=0
"$http" --run "$WORK/run2" --listen "127.0.0.1:$port" > /dev/null 2> "$WORK/err" || code=$?
[ $code -eq 4 ] || fail "at a port in use the exit code is $code"
grep -q "Address already in use: another program has the port; give another one with --http PORT" "$WORK/err" || fail "$(cat "$WORK/err")"

# The frontend dies: the model does not, and it comes back. The worker dies: 503 with Retry-After until it is back.
worker=$(pid_of worker) memd=$(pid_of memd)
kill -9 "$(pid_of http)"
is_listed() { "$MOED" ps --json | tr -d ' \n' | grep -q '"process":"http"'; }
wait_until 10 is_listed || fail "the frontend is not supervised"
again() { [ "$(get "$port" /health)" = 200 ]; }
wait_until 10 again || fail "the frontend did not come back at port $port"
[ "$worker $memd" = "$(pid_of worker) $(pid_of memd)" ] || fail "the model was loaded again"
kill -9 "$worker"
wait_until 10 again || fail "the frontend did not find the new worker"
[ "$memd" = "$(pid_of memd)" ] || fail "memd was restarted"

# API keys, a unix socket and TLS, by frontends of their own beside the deployment's.
printf '# keys\nalice secret-of-alice\nsecret-without-name\n' > "$WORK/keys"
chmod 644 "$WORK/keys"
! "$http" --run "$WORK/run2" --listen 0 --api-key-file "$WORK/keys" > /dev/null 2> "$WORK/err" || fail "keys that others can read are taken"
grep -q 'chmod 600' "$WORK/err" || fail "$(cat "$WORK/err")"
chmod 600 "$WORK/keys"
! "$http" --run "$WORK/run2" --listen 0.0.0.0:0 > /dev/null 2> "$WORK/err" || fail "anybody is served without a key"
grep -q -- --insecure "$WORK/err" || fail "$(cat "$WORK/err")"
tls=()
if command -v openssl > /dev/null; then
    openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -keyout "$WORK/key.pem" -out "$WORK/cert.pem" > /dev/null 2>&1
    tls=(--tls-cert "$WORK/cert.pem" --tls-key "$WORK/key.pem")
fi
(umask 077; echo "prometheus secret-of-metrics" > "$WORK/metrics-keys")
"$http" --run "$WORK/run2" --listen 0.0.0.0:0 --api-key-file "$WORK/keys" --metrics-key-file "$WORK/metrics-keys" --unix "$WORK/http.sock" "${tls[@]}" > /dev/null 2> "$WORK/http2.log" &
second=$!
wait_until 10 grep -q ready "$WORK/http2.log" || fail "$(cat "$WORK/http2.log")"
port=$(port_of "$WORK/http2.log")
for where in "$WORK/http.sock" ${tls:+tls:$port}; do
    [ "$(get "$where" /health)" = 200 ] || fail "$where: /health needs a key"
    [ "$(get "$where" /v1/models)" = 401 ] || fail "$where: no key is needed"
    [ "$(get "$where" /v1/models "Authorization: Bearer secret-of-alic")" = 401 ] || fail "$where: half a key is taken"
    [ "$(get "$where" /v1/models "Authorization: Bearer secret-of-alice")" = 200 ] || fail "$where: a key is refused"
    [ "$(get "$where" /metrics "Authorization: Bearer secret-of-metrics")" = 200 ] || fail "$where: a key for metrics is refused"
    [ "$(get "$where" /metrics "Authorization: Bearer secret-of-alice")" = 200 ] || fail "$where: an API key does not read metrics"
    [ "$(get "$where" /v1/models "Authorization: Bearer secret-of-metrics")" = 403 ] || fail "$where: a key for metrics does more"
    [ "$(get "$where" /v1/models "x-api-key: secret-without-name")" = 200 ] || fail "$where: a key is refused"
    [ "$(get "$where" /v1/models "x-api-key: secret-without-name" "Origin: https://any.example")" = 200 ] || fail "$where: a page with a key is refused"
    [ "$(get "$where" /v1/models "Origin: https://any.example")" = 401 ] || fail "$where: a page needs no key"
done
# A refusal of libmicrohttpd over TLS: one reply, and its body is JSON.
[ ${#tls[@]} -eq 0 ] || python3 - "$port" << 'END' || fail "a refusal over TLS"
import json, socket, ssl, sys
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
with context.wrap_socket(socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=60)) as s:
    s.sendall(b"GET /v1/models HTTP/1.1\r\n\r\n")
    reply = b""
    while b"}}" not in reply and (block := s.recv(65536)):
        reply += block
head, _, body = reply.partition(b"\r\n\r\n")
assert head.startswith(b"HTTP/1.1 400") and json.loads(body)["error"]["message"], reply
END
grep -q 'key=alice' "$WORK/http2.log" || fail "the key's name is not in the log"
! grep -q secret "$WORK/http2.log" || fail "a key is in the log"
# The socket: refused where another process listens, removed at the end, replaced where a killed process left it.
! "$http" --run "$WORK/run3" --listen 0 --unix "$WORK/http.sock" > /dev/null 2> "$WORK/err" || fail "two frontends listen at one socket"
grep -q "another process listens at $WORK/http.sock" "$WORK/err" || fail "$(cat "$WORK/err")"
[ "$(get "$WORK/http.sock" /health)" = 200 ] || fail "the refused frontend took the socket"
kill "$second"
wait "$second" || fail "the second frontend's exit code is $?"
[ ! -e "$WORK/http.sock" ] || fail "the socket stays after the end"
start_again() {
    rm -f "$WORK/http3.log" # of the process before: it would end the wait
    "$http" --run "$WORK/run3" --listen 0 --unix "$WORK/http.sock" --api-key-file "$WORK/keys" --cors-origins https://listed.example > /dev/null 2> "$WORK/http3.log" &
    third=$!
    wait_until 10 grep -q ready "$WORK/http3.log" || fail "$(cat "$WORK/http3.log")"
}
start_again
kill -9 "$third"
! wait "$third" 2> /dev/null || fail "it was not killed"
[ -S "$WORK/http.sock" ] || fail "nothing is left to replace"
start_again
[ "$(get "$WORK/http.sock" /livez)" = 200 ] || fail "the socket of a killed process is not replaced"
# Keys and --cors-origins: pages of the web need both. More keys would not help a refused page.
[ "$(get "$WORK/http.sock" /v1/models "x-api-key: secret-without-name" "Origin: https://listed.example")" = 200 ] || fail "a listed page with a key is refused"
[ "$(get "$WORK/http.sock" /v1/models "x-api-key: secret-without-name" "Origin: https://any.example")" = 403 ] || fail "a page that is not listed is served"
get "$WORK/http.sock" /v1/models --body "Origin: https://any.example" > "$WORK/refused"
grep -q -- --cors-origins "$WORK/refused" && ! grep -q -- --api-key-file "$WORK/refused" || fail "$(cat "$WORK/refused")"
kill "$third"
wait "$third" || fail "the third frontend's exit code is $?"
[ ! -e "$WORK/http.sock" ] || fail "the socket stays after the end"

# moed serve: in the foreground, says what clients need, stops when it is interrupted; with another chat template.
"$MOED" down > /dev/null
python3 -c 'import socket, time
s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1], flush=True); time.sleep(120)' > "$WORK/held" &
holder=$!
wait_until 10 [ -s "$WORK/held" ]
starts=$(grep -c 'http started' "$RUN/supervise.log")
! "$MOED" up "$MODEL" --ctx 256 --http "127.0.0.1:$(cat "$WORK/held")" > /dev/null 2> "$WORK/err" || fail "two programs have one port"
kill "$holder"
grep -q 'another program has the port' "$WORK/err" || fail "$(cat "$WORK/err")"
[ "$(grep -c 'http started' "$RUN/supervise.log")" = $((starts + 1)) ] || fail "at a port in use moed-http was started again"
echo '{{ messages[0].content' > "$WORK/broken.jinja"
! "$http" --run "$WORK/run2" --listen 0 --chat-template "$WORK/broken.jinja" > /dev/null 2> "$WORK/err" || fail "a broken template is taken"
grep -q 'broken.jinja: .*line' "$WORK/err" || fail "$(cat "$WORK/err")"
echo 'Q: {{ messages[0].content }} A:' > "$WORK/other.jinja"
"$MOED" serve "$MODEL" --ctx 256 --http 0.0.0.0:0 --insecure --any-model --chat-template "$WORK/other.jinja" > "$WORK/serve" 2>&1 &
serve=$!
wait_until 20 grep -q OPENAI_BASE_URL= "$WORK/serve" || fail "moed serve: $(cat "$WORK/serve")"
post() { python3 -c 'import sys, urllib.request as u; print(u.urlopen(u.Request(*sys.argv[1:2], sys.argv[2].encode())).read().decode())' "$@"; }
post "http://127.0.0.1:$(port_of "$RUN/http.log")/apply-template" '{"messages": [{"role": "user", "content": "Why?"}]}' > "$WORK/prompt"
grep -q '"prompt":"Q: Why? A:' "$WORK/prompt" || fail "--chat-template: $(cat "$WORK/prompt")"
post "http://127.0.0.1:$(port_of "$RUN/http.log")/api/show" '{}' | grep -q '"template":"Q: ' || fail "/api/show has another template"
post "http://127.0.0.1:$(port_of "$RUN/http.log")/v1/completions" '{"model": "gpt-4o", "prompt": "a", "max_tokens": 1}' | grep -q '"model":"demo"' || fail "--any-model: no answer, or another name"
[ "$(get "$(port_of "$RUN/http.log")" /health)" = 200 ] || fail "moed serve does not serve"
kill -INT "$serve"
wait "$serve" || fail "moed serve ended with $?"
! "$MOED" ps | grep -q http || fail "moed serve left processes"
say ok
