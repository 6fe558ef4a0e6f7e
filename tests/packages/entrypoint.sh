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
answers() { "$MOED" run -n 1 --temp 0 Once; }

say "the tmpfs of the examples, by options that docker and podman have"
options=$(sed -n 's|^ *- /run/moed:\([^ ]*\).*|\1|p' "$source/deploy/container/compose.yaml"; grep -oP -- '--tmpfs /run/moed:\K\S*' "$source/docs/containers.md")
[ "$(wc -l <<<"$options")" -eq 2 ] || fail "an example has no tmpfs for /run/moed: $options"
if grep -vE '^mode=1777(,size=[0-9]+m)?$' <<<"$options"; then fail "podman has no such option, or the user 10001 cannot write"; fi

echo key-of-test >"$WORK/keys"
for mode in 2777 1777; do
    say "the entry point in a volume of mode $mode: an emptyDir of a pod with fsGroup, and the examples' tmpfs"
    volume "$mode" "$mode"
    (umask 022; PATH=$(dirname "$MOED"):$PATH MOED_MODEL=$MODEL MOED_PORT=0 MOED_KEYS_FILE=$WORK/keys exec "$entrypoint" --ctx 256) >"$WORK/log" 2>&1 &
    container=$!
    wait_until 20 answers || fail "no answer: $(cat "$WORK/log")"
    [ "$(find "$WORK/$mode" -name keys -perm 600 | wc -l)" -eq 1 ] || fail "the copy of the keys: $(find "$WORK/$mode" -name keys -ls)"
    kill "$container"
    wait "$container" || true
done

say "each process in a container of its own, memd last"
volume split 2777
pids=()
# The limit ends what a killed test leaves.
start() { timeout 100 "$@" >>"$WORK/log" 2>&1 & pids+=($!); }
all_run() { kill -0 "${pids[@]}"; }
start "$4" --listen=127.0.0.1:0
start "$3" --ctx=256
start "$2" --model="$MODEL" --kv-cache=64M --ctx=256
wait_until 20 answers && all_run || { kill "${pids[@]}" 2>/dev/null; fail "no answer, or a process has ended: $(cat "$WORK/log")"; }
kill "${pids[@]}"
wait "${pids[@]}" || true
