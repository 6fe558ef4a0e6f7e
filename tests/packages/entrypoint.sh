#!/bin/bash
# deploy/container/entrypoint outside a container: what it does with keys, by a `moed` of this script; and the real processes in a volume
# as Kubernetes makes it, under the entry point and each in a container of its own. tests/packages/container has it in the image.
# usage: entrypoint.sh MOED MEMD WORKER HTTP MODEL SOURCE
MOED=$1 MODEL=$5 source=$6
. "$(dirname "$0")/../deployment.sh"
entrypoint=$WORK/entrypoint
cp "$source/deploy/container/entrypoint" "$entrypoint"
runtime=$(sed -n 's/.*\bMOED_RUN=\([^ ]*\).*/\1/p' "$source/deploy/container/Containerfile")
[[ $runtime = /run/moed/* ]] || fail "the image's MOED_RUN is $runtime"

# volume NAME MODE. The runtime directory is where the image has it.
volume() {
    mkdir "$WORK/$1"
    chmod "$2" "$WORK/$1"
    export MOED_RUN=$WORK/$1/${runtime#/run/moed/} RUN=$WORK/$1/${runtime#/run/moed/}
}
health() { PATH=$(dirname "$MOED"):$PATH "$source/deploy/container/health" 2>&1; }
answers() { timeout 60 "$MOED" run -n 1 --temp 0 Once; }

say "keys"
mkdir "$WORK/bin" "$WORK/folder" "$WORK/keys-run"
# shellcheck disable=SC2016 # as it stands there
printf '#!/bin/sh\necho "$@"\n' >"$WORK/bin/moed"
echo key-of-test >"$WORK/keys"
cp "$WORK/keys" "$WORK/unreadable"
chmod 755 "$WORK" "$WORK/bin/moed"
chmod 600 "$WORK/unreadable"
chmod 777 "$WORK/keys-run"
user=()
[ "$(id -u)" -ne 0 ] || user=(setpriv --reuid 10001 --regid 10001 --clear-groups)
[ "$(id -u)" -eq 0 ] || chmod 0 "$WORK/unreadable"
# enter FILE [VARIABLE=VALUE]: what the entry point prints, and its exit code. Here it is another user than the keys'.
enter() { "${user[@]}" env "PATH=$WORK/bin:$PATH" "MOED_RUN=$WORK/keys-run/private/default" MOED_MODEL=demo "MOED_KEYS_FILE=$1" "${@:2}" "$entrypoint" 2>&1 || echo " exit code $?"; }
# shellcheck disable=SC2053 # a pattern
is() { [[ $2 == $3 ]] || fail "$1: $2"; }
is "keys" "$(enter "$WORK/keys")" 'serve demo --http 0.0.0.0:8080 --log-to stderr --api-key-file *'
is "keys for metrics" "$(enter "$WORK/keys" "MOED_METRICS_KEYS_FILE=$WORK/keys")" '*--api-key-file */keys --metrics-key-file */metrics-keys'
is "no keys for metrics" "$(enter "$WORK/keys" "MOED_METRICS_KEYS_FILE=$WORK/missing")" '*no keys for /metrics: */missing is no file*exit code 2'
is "no keys" "$(enter "$WORK/missing")" '*no API keys*exit code 2'
is "no keys, but MOED_INSECURE" "$(enter "$WORK/missing" MOED_INSECURE=1)" 'serve demo --http 0.0.0.0:8080 --log-to stderr --insecure'
for insecure in 0 1; do # keys were meant
    is "unreadable keys" "$(enter "$WORK/unreadable" MOED_INSECURE=$insecure)" "*user * cannot read the API keys in $WORK/unreadable*exit code 2"
    is "a folder" "$(enter "$WORK/folder" MOED_INSECURE=$insecure)" "*$WORK/folder is a folder*exit code 2"
done

say "the tmpfs of the examples, by options that docker and podman have"
options=$(sed -n 's|^ *- /run/moed:\([^ ]*\).*|\1|p' "$source/deploy/container/compose.yaml"; grep -oP -- '--tmpfs /run/moed:\K\S*' "$source/docs/containers.md")
[ "$(wc -l <<<"$options")" -eq 2 ] || fail "an example has no tmpfs for /run/moed: $options"
if grep -vE '^mode=1777(,size=[0-9]+m)?$' <<<"$options"; then fail "podman has no such option, or the user 10001 cannot write"; fi

tls=()
for mode in 2777 1777; do
    # The second one with TLS, where there is a program to make a certificate.
    if [ $mode = 1777 ] && command -v openssl >/dev/null; then
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$WORK/tls.key" -out "$WORK/tls.pem" -days 2 -subj /CN=moed 2>/dev/null
        chmod 600 "$WORK/tls.key"
        tls=(--tls-cert "$WORK/tls.pem" --tls-key "$WORK/tls.key")
    fi
    say "the entry point in a volume of mode $mode: an emptyDir of a pod with fsGroup, and the examples' tmpfs"
    volume "$mode" "$mode"
    (umask 022; PATH=$(dirname "$MOED"):$PATH MOED_MODEL=$MODEL MOED_PORT=0 MOED_KEYS_FILE=$WORK/keys exec "$entrypoint" --ctx 256 "${tls[@]}") >"$WORK/log" 2>&1 &
    container=$!
    wait_until 20 answers || fail "no answer: $(cat "$WORK/log")"
    wait_until 20 health || fail "the health check fails: $(health)"
    [ "$(find "$WORK/$mode" -name keys -perm 600 | wc -l)" -eq 1 ] || fail "the copy of the keys: $(find "$WORK/$mode" -name keys -ls)"
    kill "$container"
    wait "$container" || true
    if health; then fail "the health check finds a container that has ended"; fi
done

if [ "$(id -u)" -eq 0 ] && unshare --pid --fork --mount-proc true 2>/dev/null; then
    say "as process 1: all logs on standard error, orphans, the end of a supervisor that is killed"
    volume one 1777
    (umask 022; PATH=$(dirname "$MOED"):$PATH MOED_MODEL=$MODEL MOED_PORT=0 MOED_KEYS_FILE=$WORK/keys \
        exec unshare --pid --fork --mount-proc --kill-child "$entrypoint" --ctx 256 --log-format json) >"$WORK/log" 2>&1 &
    container=$!
    logs() { grep -q "^{\"time\":.*\"component\":\"$1\".*${2:-}" "$WORK/log"; }
    for component in supervise memd worker http; do wait_until 20 logs $component || fail "no line of $component: $(cat "$WORK/log")"; done
    wait_until 20 logs http "listening at" || fail "moed-http's line: $(cat "$WORK/log")"
    one=$(pgrep -P $container)
    supervisor=$(pgrep -P "$one" -x moed-supervise)
    pkill -KILL -P "$supervisor" -x moed-worker
    wait_until 20 logs supervise "worker.*ended.*signal 9" || fail "the worker's end is not on standard error: $(cat "$WORK/log")"
    nsenter -t "$one" -p -- sh -c 'sleep 0 &'
    has_no_orphan() { ! ps -o comm= --ppid "$one" | grep -q sleep; }
    wait_until 20 has_no_orphan || fail "process 1 does not reap orphans: $(ps -o pid=,stat=,comm= --ppid "$one")"
    kill -KILL "$supervisor"
    code=0
    wait $container || code=$?
    [ $code -eq 1 ] || fail "exit code $code after the supervisor's end: $(cat "$WORK/log")"
    tail -n 1 "$WORK/log" | grep -q 'the supervisor was killed by signal 9' || fail "the supervisor's end: $(tail "$WORK/log")"
fi

say "each process in a container of its own, memd last"
volume split 2777
pids=()
# start COMMAND...: starts it again where it ends, as the kubelet does. The limits end what a killed test leaves.
# shellcheck disable=SC2016 # as it stands there
start() { setsid bash -c 'for _ in 1 2 3; do timeout --foreground 100 "$@"; done' - "$@" >>"$WORK/log" 2>&1 & pids+=(-$!); }
start "$4" --listen=127.0.0.1:0
start "$3" --ctx=256
start "$2" --model="$MODEL" --kv-cache=64M --ctx=256
code=0
wait_until 20 answers || code=$?
kill -- "${pids[@]}" || true
wait
[ $code -eq 0 ] || fail "no answer: $(cat "$WORK/log")"
if grep 'their files are not restricted' "$WORK/log"; then fail "a process that the image starts does not confine itself"; fi
