#!/bin/bash
# A deployment in the foreground that fails for good: the command says why, stops what is left and ends with 1, so that a container or a
# service manager starts it again. One whose worker is only killed goes on.
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"
cp "$MODEL" "$WORK/model.gguf"

for verb in "serve --http 0" "up --foreground"; do
    rm -f "$WORK/out" # of the other verb: it would end the wait below
    # shellcheck disable=SC2086 # words
    "$MOED" $verb "$WORK/model.gguf" >"$WORK/out" 2>"$WORK/err" & foreground=$!
    wait_until 30 grep -q ' answers after ' "$WORK/out" || fail "$verb: $(cat "$WORK/err")"
    worker=$(pid_of worker)
    kill -9 "$worker"
    restarted() { pid=$(pid_of worker) && [ "$pid" != "$worker" ] && "$MOED" run -n 1 x; }
    wait_until 30 restarted || fail "$verb ends with a worker: $(cat "$WORK/err")"
    mv "$WORK/model.gguf" "$WORK/away.gguf"
    kill -9 "$(pid_of memd)"
    ended() { ! kill -0 $foreground; }
    wait_until 60 ended || fail "$verb goes on without memd: $("$MOED" ps 2>&1)"
    set +e; wait $foreground; code=$?; set -e
    [ $code -eq 1 ] || fail "$verb ends with $code"
    grep -q 'moed: memd has failed: exit status 3 .*model.gguf.*; its logs are in .*; stopping' "$WORK/err" || fail "$verb says no reason: $(cat "$WORK/err")"
    "$MOED" ps 2>&1 | grep -q 'no deployment is running' || fail "$verb leaves processes: $("$MOED" ps)"
    mv "$WORK/away.gguf" "$WORK/model.gguf"
done
say "ok: a deployment in the foreground that fails ends its command"
