#!/bin/bash
# A certificate and API keys that change while moed-http runs: new connections get the new ones, open ones go on, and broken ones change
# nothing. usage: renewal.sh MOED
MOED=$1
. "$(dirname "$0")/../deployment.sh"
command -v python3 > /dev/null || skip "python3 is not here"
command -v openssl > /dev/null || skip "openssl is not here"
here=$(dirname "$0")
http=$(dirname "$MOED")/moed-http

# certificate DIRECTORY NAME
certificate() {
    mkdir -p "$1"
    openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj "/CN=$2" -keyout "$1/tls.key" -out "$1/tls.crt" > /dev/null 2>&1
}
# switch VERSION: as Kubernetes replaces a secret.
switch() { ln -sfn "$1" "$WORK/secret/..new" && mv -T "$WORK/secret/..new" "$WORK/secret/..data"; }
certificate "$WORK/secret/..1" first
certificate "$WORK/secret/..2" second
certificate "$WORK/secret/..3" third
cp "$WORK/secret/..1/tls.key" "$WORK/secret/..3/tls.key" # of another certificate
switch ..1
ln -s ..data/tls.crt ..data/tls.key "$WORK/secret/"
mkdir "$WORK/keys"
umask 077
echo "alice key-of-alice" > "$WORK/keys/keys"
echo "root key-of-root" > "$WORK/keys/admin"

"$http" --run "$WORK/run2" --listen 127.0.0.1:0 --tls-cert "$WORK/secret/tls.crt" --tls-key "$WORK/secret/tls.key" \
    --api-key-file "$WORK/keys/keys" --admin-key-file "$WORK/keys/admin" > /dev/null 2> "$WORK/log" & frontend=$!
wait_until 20 grep -q ready "$WORK/log" || fail "$(cat "$WORK/log")"
port=$(port_of "$WORK/log")
get() { python3 "$here/http_get.py" "tls:$port" /v1/models "x-api-key: $1"; }
answers() { [ "$(get "$1")" = "$2" ]; }
subject() { openssl s_client -connect "127.0.0.1:$port" < /dev/null 2> /dev/null | openssl x509 -noout -subject; }
serves() { subject | grep -q "$1"; }
serves first || fail "the certificate is $(subject)"
answers key-of-alice 200 || fail "the key is refused"

# A connection that stays open: a request before each line of the pipe.
mkfifo "$WORK/turns"
python3 - "$port" > "$WORK/open" 2>&1 << 'END' 3< "$WORK/turns" & open=$!
import http.client, os, ssl, sys
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
c = http.client.HTTPSConnection("127.0.0.1", int(sys.argv[1]), timeout=60, context=context)
while True:
    c.request("GET", "/livez")
    reply = c.getresponse()
    reply.read()
    print(reply.status, flush=True)
    if not os.read(3, 1):
        break
END
exec 4> "$WORK/turns"
wait_until 20 grep -q 200 "$WORK/open" || fail "no open connection: $(cat "$WORK/open")"

say "a new certificate"
switch ..2
wait_until 20 serves second || fail "the certificate is still $(subject): $(cat "$WORK/log")"
printf x >&4
turns() { [ "$(grep -c 200 "$WORK/open")" -ge "$1" ]; }
wait_until 20 turns 2 || fail "the open connection was cut: $(cat "$WORK/open")"

say "files that are written again as they were"
lines() { grep -c 'read again' "$WORK/log"; }
before=$(lines)
touch "$WORK/secret/tls.crt" "$WORK/secret/tls.key" "$WORK/keys/keys"
printf '# new\nroot key-of-root\nother key-of-other\n' > "$WORK/keys/admin" # moed-http looks at it last
wait_until 20 grep -q '2 API keys were read again' "$WORK/log" || fail "the admin keys are not read: $(cat "$WORK/log")"
[ "$(lines)" = $((before + 1)) ] || fail "what is the same counts as new: $(cat "$WORK/log")"

say "a certificate whose key is another's"
switch ..3
wait_until 20 grep -q 'has changed and cannot be used.*the one before stays' "$WORK/log" || fail "no line about the certificate: $(cat "$WORK/log")"
serves second || fail "the certificate is $(subject)"
switch ..1
wait_until 20 serves first || fail "no certificate is read after a broken one: $(cat "$WORK/log")"
printf x >&4
wait_until 20 turns 3 || fail "the open connection was cut: $(cat "$WORK/open")"

say "new keys"
echo "bob key-of-bob" > "$WORK/keys/new"
mv "$WORK/keys/new" "$WORK/keys/keys"
wait_until 20 answers key-of-bob 200 || fail "a new key is refused: $(cat "$WORK/log")"
answers key-of-alice 401 || fail "a key that was removed is taken"
answers key-of-root 200 || fail "the admin key is refused"
rm "$WORK/keys/keys"
wait_until 20 grep -q 'cannot use the API keys .*those of before stay' "$WORK/log" || fail "no line about the keys: $(cat "$WORK/log")"
answers key-of-bob 200 || fail "the keys are forgotten with their file"
! grep -q key-of "$WORK/log" || fail "a key is in the log"
exec 4>&-
wait $open || fail "the open connection: $(cat "$WORK/open")"
kill $frontend
wait $frontend || fail "moed-http ends with $?: $(cat "$WORK/log")"

say "connections of two certificates count together, and those of the former one end"
: > "$WORK/log" # before the process does it
"$http" --run "$WORK/run2" --listen 127.0.0.1:0 --tls-cert "$WORK/secret/tls.crt" --tls-key "$WORK/secret/tls.key" \
    --connections 3 --idle-timeout 3600 --header-timeout 3600 > /dev/null 2> "$WORK/log" & frontend=$!
wait_until 20 grep -q ready "$WORK/log" || fail "$(cat "$WORK/log")"
port=$(port_of "$WORK/log")
mkfifo "$WORK/renewed"
python3 - "$port" "$WORK/renewed" > "$WORK/three" 2>&1 << 'END' & three=$!
import http.client, ssl, sys
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
def connect():
    return http.client.HTTPSConnection("127.0.0.1", int(sys.argv[1]), timeout=60, context=context)
def get(c):
    c.request("GET", "/livez")
    reply = c.getresponse()
    reply.read()
    assert reply.status == 200, reply.status
    return reply.headers["Connection"]
def is_refused():
    try:
        get(connect())
    except (OSError, http.client.HTTPException):
        return True
    return False
old = [connect() for _ in range(3)]
for c in old:
    assert get(c) != "close", "a connection ends without a cause"
print("connected", flush=True)
with open(sys.argv[2]) as renewed:
    renewed.read()
assert is_refused(), "a fourth connection is accepted"
assert get(old[0]) == "close", "a connection of the former certificate goes on"
while is_refused():  # until the server has seen its end
    pass
END
wait_until 30 grep -q connected "$WORK/three" || fail "no connections: $(cat "$WORK/three")"
switch ..2
wait_until 20 grep -q 'certificate in .* was read again' "$WORK/log" || fail "no new certificate: $(cat "$WORK/log")"
: > "$WORK/renewed"
wait $three || fail "$(cat "$WORK/three")"
kill $frontend
wait $frontend || fail "moed-http ends with $?: $(cat "$WORK/log")"

say "a directory that is for other files, too"
mkdir -p "$WORK/home"
echo "bob key-of-bob" > "$WORK/home/keys"
: > "$WORK/log"
HOME=$WORK/home "$http" --run "$WORK/run2" --listen 127.0.0.1:0 --api-key-file "$WORK/home/keys" > /dev/null 2> "$WORK/log" & frontend=$!
wait_until 20 grep -q ready "$WORK/log" || fail "$(cat "$WORK/log")"
grep -q 'home/keys is read at the start only' "$WORK/log" || grep -qi 'landlock' "$WORK/log" || fail "no line about the directory: $(cat "$WORK/log")"
if grep -q 'read at the start only' "$WORK/log"; then
    echo "carol key-of-carol" > "$WORK/home/keys"
    sleep 6 # more than two looks
    ! grep -q 'cannot use' "$WORK/log" || fail "the log blames the file: $(cat "$WORK/log")"
fi
kill $frontend
wait $frontend || fail "moed-http ends with $?"

say "a directory that is replaced by a link"
mkdir "$WORK/tls"
cp -r "$WORK/secret/..1" "$WORK/tls/release-1"
cp -r "$WORK/secret/..2" "$WORK/tls/release-2"
ln -s release-1 "$WORK/tls/current"
: > "$WORK/log"
"$http" --run "$WORK/run2" --listen 127.0.0.1:0 --tls-cert "$WORK/tls/current/tls.crt" --tls-key "$WORK/tls/current/tls.key" \
    > /dev/null 2> "$WORK/log" & frontend=$!
wait_until 20 grep -q ready "$WORK/log" || fail "$(cat "$WORK/log")"
port=$(port_of "$WORK/log")
serves first || fail "the certificate is $(subject)"
ln -sfn release-2 "$WORK/tls/next" && mv -T "$WORK/tls/next" "$WORK/tls/current"
wait_until 20 serves second || fail "the certificate is still $(subject): $(cat "$WORK/log")"
kill $frontend
wait $frontend || fail "moed-http ends with $?"
say "ok: certificates and keys that change"
