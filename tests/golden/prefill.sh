#!/bin/bash
# A long prompt on a CUDA device. Without --reproducible cuBLAS computes its products. The distance of the logits to the golden
# logits, of which the file has the first rows, is at most LIMIT; their distance to the portable definition's at most twice LIMIT.
# With --reproducible, or without cuBLAS, which the simulation can hide, the logits equal the definition's, to the bit; without
# cuBLAS not if experts are BF16, which tensor cores multiply. The same holds for the perplexity: cuBLAS computes its output head.
# `moed logits` computes the head a few rows at a time without cuBLAS, so the two differ by the head only.
#   prefill.sh MOED COMPARE DIRECTORY NAME LIMIT      MOED_TEST_DEVICE: cuda:N
MOED=$1 COMPARE=$2 DIRECTORY=$3 NAME=$4 LIMIT=$5 MODEL=$3/$4.gguf
. "$(dirname "$0")/../deployment.sh"
cat "$DIRECTORY"/tokens.txt{,,} > "$WORK/tokens" # 96
TOKENS=$(tr -s ' \n' ',,' < "$WORK/tokens" | sed 's/,$//')
VOCAB=320
STREAM_BYTES=$((8 << 20)) # the driver's part of the scratch memory, for a stream (DEVICE_STREAM_BYTES)

# On a device the worker allocates no more scratch memory than memd planned.
scratch_within_plan() {
    case " $* " in *" --device "*) ;; *) return ;; esac
    local used planned
    used=$(metric worker 'moed_worker_device_bytes{use="scratch"}') planned=$(metric memd 'moed_memd_device_bytes{use="scratch"}')
    [ "$used" -le $((planned - STREAM_BYTES)) ] || fail "$*: $used bytes of scratch, planned $planned"
}
# logits FILE [OPTION]...: writes the logits, and to FILE.nll the mean negative log-likelihood by them and by `moed perplexity`
logits() {
    local file=$1
    shift
    "$MOED" up "$@" --kv-type f32 "$MODEL" >/dev/null || fail "up $*"
    "$MOED" logits --tokens "$TOKENS" -o "$WORK/$file"
    "$MOED" perplexity "$MODEL" --tokens -f "$WORK/tokens" --json > "$WORK/perplexity"
    echo "$("$(dirname "$COMPARE")/golden-nll" "$WORK/$file" "$VOCAB" "$WORK/tokens")" \
        "$(sed -n 's/.*"nll": *\([-0-9.e]*\).*/\1/p' "$WORK/perplexity")" > "$WORK/$file.nll"
    scratch_within_plan "$@"
    "$MOED" down >/dev/null
}
# distance FILE: prints the relative distance of the two values in FILE.nll. Values from the same logits differ by the printed digits
# only.
distance() { awk '{ d = ($1 - $2) / $1; print d < 0 ? -d : d; exit !(NF == 2) }' "$WORK/$1.nll"; }
below() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }'; }
DIGITS=3e-8
same() {
    cmp -s "$WORK/want" "$WORK/$1" || fail "$NAME, $1: other bits than the definition's"
    below "$(distance "$1")" $DIGITS || fail "$NAME, $1: perplexity and logits differ: $(cat "$WORK/$1.nll")"
}
near() { # near FILE
    local exact=$DIRECTORY/$NAME.logits
    head -c "$(stat -c %s "$exact")" "$WORK/$1" > "$WORK/first"
    printf '%-20s %-10s ' "$NAME, $1" "exact"
    "$COMPARE" "$WORK/first" "$exact" "$VOCAB" relative "$LIMIT"
    printf '%-20s %-10s ' "$NAME, $1" "96 tokens"
    "$COMPARE" "$WORK/$1" "$WORK/want" "$VOCAB" relative "$(awk -v l="$LIMIT" 'BEGIN { print 2 * l }')"
    below "$(distance "$1")" 1e-3 || fail "$NAME, $1: perplexity and logits differ: $(cat "$WORK/$1.nll")"
}
without_blas() { # without_blas FILE
    case $NAME in
    *BF16*) near "$1" && ! cmp -s "$WORK/want" "$WORK/$1" || fail "$NAME, $1: tensor cores computed nothing" ;;
    *) same "$1" ;;
    esac
}
DEVICE=(--device "$MOED_TEST_DEVICE,vram=100%" --policy ondemand)
WITHOUT="long prompts are computed without cuBLAS"

logits want --reproducible
logits reproducible --reproducible "${DEVICE[@]}"
same reproducible
logits many "${DEVICE[@]}"
if grep -q "$WITHOUT" "$RUN/worker.log"; then
    without_blas many
    skip "cuBLAS is not installed"
fi
near many
! cmp -s "$WORK/want" "$WORK/many" || fail "$NAME: cuBLAS computed nothing"
below $DIGITS "$(distance many)" || fail "$NAME: cuBLAS did not compute the output head: $(cat "$WORK/many.nll")"
case $(basename "${MOED_CUDA_MODULE:-}") in *-sim.so) ;; *) exit ;; esac

MOED_CUSIM_BLAS=0 logits without "${DEVICE[@]}"
grep -q "$WITHOUT" "$RUN/worker.log" || fail "no message that cuBLAS is missing"
without_blas without
# calls CALL N: the N-th call of CALL fails, and the worker that computes the prompt exits. The calls before are the worker's trials
# of cuBLAS.
calls() {
    MOED_CUSIM_FAIL=$1:$2 "$MOED" up "${DEVICE[@]}" --kv-type f32 "$MODEL" >/dev/null
    ! "$MOED" logits --tokens "$TOKENS" -o "$WORK/failed" 2>/dev/null || fail "$NAME: $1 was not called"
    grep -q "$1: " "$RUN/worker.log" || fail "no message about the call that failed"
    "$MOED" down >/dev/null
}
case $NAME in
*BF16*) # an older device: the worker uses float32 instead
    export MOED_CUSIM_BLAS_REFUSES=bf16
    logits refused "${DEVICE[@]}"
    grep -q "no products of BF16 on this device: weights of BF16 are multiplied as float32" "$RUN/worker.log" ||
        fail "no message about the type that cuBLAS refuses"
    near refused
    calls cublasGemmEx 4 ;;
*deepseek2*) # the only batched products are those of its heads' matrices
    calls cublasGemmStridedBatchedEx 4 ;;
esac
