#!/bin/bash
# Keys and values of Q8_0 on a CUDA device. The logits, as one batch and one token at a time, and the answer equal those of the host
# with the same type, to the bit. They differ from those with float32.
#   kv_q8_0.sh MOED DIRECTORY NAME      MOED_TEST_DEVICE: cuda:N. NAME "latent": a random model with latent attention; "narrow": one
#   whose values are narrower than keys. No such golden model has rows of whole blocks
MOED=$1 DIRECTORY=$2 NAME=$3 MODEL=$2/$3.gguf
case $NAME in
latent) MADE="deepseek2 --head-dim 32 --rope-dim 32 --kv-rank 64" MODEL= ;;
narrow) MADE="mimo2 --head-dim 96 --kv-heads 2" MODEL= ;;
esac
. "$(dirname "$0")/../deployment.sh"
if [ -z "$MODEL" ]; then
    MODEL=$WORK/$NAME.gguf
    # shellcheck disable=SC2086 # words
    "$MOED" mkmodel --arch $MADE --layers 3 --hidden 64 --heads 4 --experts 8 --top-k 2 --expert-width 64 --vocab 320 --type F16 \
        -o "$MODEL" >/dev/null
fi
TOKENS=$(tr -s ' \n' ',,' < "$DIRECTORY/tokens.txt" | sed 's/,$//')
TOKENS=$TOKENS,$TOKENS,$TOKENS # 96: more than a page

compute() { # compute FILE [OPTION]...: writes the logits and an answer
    local file=$1
    shift
    "$MOED" up "$@" --reproducible "$MODEL" >/dev/null || fail "up $*"
    "$MOED" logits --tokens "$TOKENS" -o "$WORK/$file-batch"
    "$MOED" logits --stepwise --tokens "$TOKENS" -o "$WORK/$file-stepwise"
    "$MOED" run -n 40 --ignore-end --temp 0 --json --tokens "$TOKENS" | sed -n 's/.*"tokens": *\(\[[^]]*\]\).*/\1/p' > "$WORK/$file-answer"
    [ -s "$WORK/$file-answer" ] || fail "$*: an answer without tokens"
    "$MOED" down >/dev/null
}
compute exact --kv-type f32
compute want --kv-type q8_0
compute got --kv-type q8_0 --device "$MOED_TEST_DEVICE,vram=100%" --policy ondemand
for part in batch stepwise answer; do
    cmp -s "$WORK/want-$part" "$WORK/got-$part" || fail "$NAME, $part: other bits than on the host"
done
! cmp -s "$WORK/want-batch" "$WORK/exact-batch" || fail "$NAME: the worker did not round keys and values"
say "$NAME: logits and answer with Q8_0 keys and values as on the host"
