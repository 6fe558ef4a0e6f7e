#!/bin/bash
# Batch independence: a request's tokens are the same alone and among others, greedy and sampled, with short
# prompts and with prompts of several prefill pieces.
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
for i in "${!prompts[@]}"; do ask "$i" "$WORK/alone-$i" || fail "request $i alone"; done
pids=()
for i in "${!prompts[@]}"; do ask "$i" "$WORK/among-$i" & pids+=($!); done
for pid in "${pids[@]}"; do wait "$pid" || fail "a request among others"; done
for i in "${!prompts[@]}"; do
    cmp -s "$WORK/alone-$i.tokens" "$WORK/among-$i.tokens" || fail "request $i: alone $(cat "$WORK/alone-$i.tokens"), among others $(cat "$WORK/among-$i.tokens")"
done
say "ok: ${#prompts[@]} requests, the same alone and among others"
