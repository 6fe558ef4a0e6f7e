#!/bin/bash
# Attention of a long prompt by tensor cores, in a model whose heads have 128 dimensions (usual) or 256 (wide), or whose attention is
# latent, with a cache of F16. With --reproducible the logits equal the definition's, to the bit. Without it, where cuBLAS is used,
# their relative distance is at most LIMIT.
#   prefill_attention.sh MOED COMPARE DIRECTORY NAME LIMIT      NAME: usual, wide, latent. MOED_TEST_DEVICE: cuda:N
MOED=$1 COMPARE=$2 DIRECTORY=$3 NAME=$4 LIMIT=$5
case $NAME in
usual) MADE="qwen3moe --head-dim 128 --kv-heads 2" KERNEL=attend_many_tile ;;
wide) MADE="qwen3moe --head-dim 256 --kv-heads 2" KERNEL=attend_many_tile ;;
latent) MADE="deepseek2 --head-dim 32 --rope-dim 32 --kv-rank 160" KERNEL=attend_latent_tile ;;
esac
. "$(dirname "$0")/../deployment.sh"
MODEL=$WORK/$NAME.gguf
VOCAB=320
# shellcheck disable=SC2086 # words
"$MOED" mkmodel --arch $MADE --layers 2 --hidden 64 --heads 4 --experts 8 --top-k 2 --expert-width 64 --vocab $VOCAB --type F32 \
    -o "$MODEL" >/dev/null
TOKENS=$(cat "$DIRECTORY"/tokens.txt{,,} | tr -s ' \n' ',,' | sed 's/,$//') # 96: a group of rows, and a part of one
DEVICE=(--device "$MOED_TEST_DEVICE,vram=100%" --policy ondemand --kv-type f16)

logits() { # logits FILE [OPTION]...
    local file=$1
    shift
    start_deployment "$@" "$MODEL"
    "$MOED" logits --tokens "$TOKENS" -o "$WORK/$file"
    "$MOED" down >/dev/null
}
logits want --reproducible --kv-type f16
logits reproducible --reproducible "${DEVICE[@]}"
cmp -s "$WORK/want" "$WORK/reproducible" || fail "$NAME: other bits than the definition's"
logits many "${DEVICE[@]}"
! grep -q "long prompts are computed without cuBLAS" "$RUN/worker.log" || skip "cuBLAS is not installed"
"$COMPARE" "$WORK/many" "$WORK/want" "$VOCAB" relative "$LIMIT"
case $(basename "${MOED_CUDA_MODULE:-}") in *-sim.so) ;; *) exit ;; esac

# The kernel of tensor cores fails at its first run, and the worker exits.
MOED_CUSIM_FAIL=$KERNEL:1 start_deployment "${DEVICE[@]}" "$MODEL"
! "$MOED" logits --tokens "$TOKENS" -o "$WORK/failed" 2>/dev/null || fail "$NAME: tensor cores computed no attention"
grep -q "unspecified launch failure" "$RUN/worker.log" || fail "$NAME: no message about the kernel that failed"
