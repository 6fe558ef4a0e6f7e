#!/bin/bash
# Batch independence: a request has the same tokens whether the worker runs only this request or several at once. The test covers
# greedy and sampled requests, short prompts, and prompts of several prefill chunks.
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"
"$MOED" up "$MODEL" --parallel 4 --ctx 2048 >/dev/null 2>&1

long=$(seq -s ' ' 1 400)
prompts=("Once upon a time" "$long" "int main(void) {" "0 1 2 3" "The weather in" "$long and on" "A" "last")
ask() { # ask I FILE
    local temp=0
    [ $(($1 % 2)) -eq 0 ] || temp=0.9
    "$MOED" run -n 32 --ignore-end --temp $temp --seed "$1" --json "${prompts[$1]}" > "$2"
    sed -n 's/.*"tokens": *\(\[[^]]*\]\).*/\1/p' "$2" > "$2.tokens"
    [ -s "$2.tokens" ] || { cat "$2" >&2; return 1; }
}
for i in "${!prompts[@]}"; do ask "$i" "$WORK/single-$i" || fail "request $i, the only one"; done
pids=()
for i in "${!prompts[@]}"; do ask "$i" "$WORK/batch-$i" & pids+=($!); done
for pid in "${pids[@]}"; do wait "$pid" || fail "a request of the batch"; done
for i in "${!prompts[@]}"; do
    cmp -s "$WORK/single-$i.tokens" "$WORK/batch-$i.tokens" ||
        fail "request $i: as the only one $(cat "$WORK/single-$i.tokens"), in the batch $(cat "$WORK/batch-$i.tokens")"
done
say "ok: ${#prompts[@]} requests, the same tokens one at a time and as a batch"
