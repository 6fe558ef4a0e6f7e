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

# Several answers to one prompt: those of single requests with the seeds one after the other, and the prompt is computed once.
single() { "$MOED" run -n 24 --ignore-end --temp 0.9 --seed "$1" --json "$long so" | sed -n 's/.*"tokens": *\(\[[^]]*\]\).*/\1/p'; }
"$MOED" cache --clear >/dev/null
before=$(metric worker moed_worker_prompt_tokens_total)
"$MOED" run -n 24 --ignore-end --temp 0.9 --seed 50 --json --answers 6 "$long so" > "$WORK/answers" || fail "six answers"
computed=$(($(metric worker moed_worker_prompt_tokens_total) - before))
prompt=$(sed -n '1s/.*"prompt_tokens": *\([0-9]*\).*/\1/p' "$WORK/answers")
sed -n 's/.*"tokens": *\(\[[^]]*\]\).*/\1/p' "$WORK/answers" > "$WORK/answers.tokens"
for seed in 50 51 52 53 54 55; do single $seed; done | cmp -s - "$WORK/answers.tokens" || fail "six answers are not those of the six seeds"
[ "$prompt" -gt 600 ] && [ "$computed" -le $((prompt + 5 * 64)) ] || fail "six answers computed $computed tokens of a prompt of $prompt"
"$MOED" run -n 4 --temp 0 --answers 2 "A" > "$WORK/text" || fail "two answers"
[ "$(grep -c '^--- answer [12] of 2$' "$WORK/text")" = 2 ] || fail "two answers: $(cat "$WORK/text")"
say "ok: several answers computed $computed tokens of a prompt of $prompt"
