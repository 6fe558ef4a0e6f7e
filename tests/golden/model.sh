#!/bin/bash
# One golden model in a real deployment. The test compares the logits of the tokens, as one batch and one token at a time, with the
# golden logits. If the model has a .greedy file, it also compares the greedy continuation and the perplexity. The worker keeps keys
# and values as float32, as the other implementation does. The greedy continuation is the same with the default type.
#   [MOED_TEST_DEVICE=cuda:0] [MOED_TEST_SHORT=1] model.sh MOED COMPARE DIRECTORY NAME MODE LIMIT
# MODE and LIMIT are arguments of golden-compare. With MOED_TEST_DEVICE the device computes all routed experts and the dense part;
# with MOED_TEST_DENSE=host the host computes the dense part, so that no layer is device-only. MOED_TEST_SHORT: the default type of
# keys and values only with a model of each layout of the cache: grouped, latent, values narrower than keys, recurrent, windows.
MOED=$1 COMPARE=$2 DIRECTORY=$3 NAME=$4 MODE=$5 LIMIT=$6
[ -e "$DIRECTORY/$NAME.gguf" ] || { echo "skipped: $DIRECTORY/$NAME.gguf does not exist" >&2; exit 77; }
. "$(dirname "$0")/../deployment.sh"
[ "$MODE" != peer ] || LIMIT=$DIRECTORY/$NAME.peer
VOCAB=320
TOKENS=$(tr -s ' \n' ',,' < "$DIRECTORY/tokens.txt" | sed 's/,$//')

DEVICE=()
[ -z "${MOED_TEST_DEVICE:-}" ] || DEVICE=(--device "$MOED_TEST_DEVICE,vram=100%" --policy ondemand)
"$MOED" up "${DEVICE[@]}" --kv-type f32 "$DIRECTORY/$NAME.gguf" >/dev/null
check_logits() { # check_logits [--stepwise]
    "$MOED" logits "$@" --tokens "$TOKENS" -o "$WORK/logits"
    printf '%-14s %-10s ' "$NAME" "${1:-batch}"
    "$COMPARE" "$WORK/logits" "$DIRECTORY/$NAME.logits" "$VOCAB" "$MODE" "$LIMIT"
}
check_logits
check_logits --stepwise
if [ ${#DEVICE[@]} -gt 0 ]; then
    segments() { metric worker "moed_worker_segments_total{where=\"$1\"}"; }
    [ $(($(segments resident) + $(segments loaded))) -gt 0 ] || fail "$MOED_TEST_DEVICE computed nothing"
    # this policy evicts nothing as long as slots are free: soon all experts are resident, and layers become device-only
    "$MOED" policy lru --assign load-all >/dev/null
    check_logits --stepwise
    [ -n "${MOED_TEST_DENSE:-}" ] || [ "$(metric memd 'moed_memd_device_bytes{use="dense"}')" -gt 0 ] || fail "no dense weights on $MOED_TEST_DEVICE"
    [ -n "${MOED_TEST_DENSE:-}" ] || [ "$(metric worker moed_worker_layers_replayed_total)" -gt 0 ] || fail "$MOED_TEST_DEVICE replayed no device-only layer"
fi
check_greedy() {
    "$MOED" run -n 16 --ignore-end --temp 0 --json --tokens "$(echo "$TOKENS" | cut -d, -f1-8)" > "$WORK/answer"
    got=$(sed -n 's/.*"tokens": *\[\([0-9, ]*\)\].*/\1/p' "$WORK/answer" | tr -d ,)
    want=$(tr -s ' \n' '  ' < "$DIRECTORY/$NAME.greedy" | sed 's/ *$//')
    [ "$got" = "$want" ] || fail "greedy continuation of $NAME, $1: got '$got', expected '$want'"
    say "$NAME greedy continuation equal, $1"
}
if [ -e "$DIRECTORY/$NAME.greedy" ]; then
    check_greedy "keys and values in float32"
    want=$("$(dirname "$COMPARE")/golden-nll" "$DIRECTORY/$NAME.logits" "$VOCAB" "$DIRECTORY/tokens.txt")
    "$MOED" perplexity "$DIRECTORY/$NAME.gguf" --tokens -f "$DIRECTORY/tokens.txt" --json > "$WORK/perplexity"
    got=$(sed -n 's/.*"nll": *\([-0-9.e]*\).*/\1/p' "$WORK/perplexity")
    # the worker may round the inputs of long prompts; the mean of many tokens has a tighter limit than a row of logits
    most=$(awk -v mode="$MODE" -v limit="$LIMIT" 'BEGIN { print (mode == "relative" && limit > 1e-3 ? limit / 10 : 1e-4) }')
    awk -v got="$got" -v want="$want" -v most="$most" 'BEGIN { d = got - want; exit !(got != "" && d * d <= (most * want) ^ 2) }' ||
        fail "mean negative log-likelihood of $NAME: got $got, expected $want"
    say "$NAME perplexity: nll $got, of the golden logits $want"
    case ${MOED_TEST_SHORT:+$NAME} in '' | mixtral | deepseek2-v3 | mimo2 | qwen35moe | gpt-oss) ;; *) exit 0 ;; esac
    "$MOED" down >/dev/null
    "$MOED" up "${DEVICE[@]}" "$DIRECTORY/$NAME.gguf" >/dev/null
    check_greedy "keys and values in the default type"
fi
