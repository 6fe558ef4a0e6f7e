#!/bin/bash
# A long prompt on a CUDA device: without --reproducible its products go through cuBLAS, and its logits are as near to the exact
# ones, of which there are the first, as golden ones are allowed to be, and to the definition's as two that are; with it, or without a cuBLAS (which the simulation can be
# told), they have the definition's bits. The same for the perplexity, whose output head goes through cuBLAS too: that of
# `moed logits`, a few rows at a time, does not, so the two differ by the head alone.
#   prefill.sh MOED COMPARE DIRECTORY NAME LIMIT      MOED_TEST_DEVICE: cuda:N
MOED=$1 COMPARE=$2 DIRECTORY=$3 NAME=$4 LIMIT=$5 MODEL=$3/$4.gguf
. "$(dirname "$0")/../deployment.sh"
cat "$DIRECTORY"/tokens.txt{,,} > "$WORK/tokens" # 96
TOKENS=$(tr -s ' \n' ',,' < "$WORK/tokens" | sed 's/,$//')
VOCAB=320
STREAM_BYTES=$((8 << 20)) # of scratch: the driver's, for a stream (DEVICE_STREAM_BYTES)

# On a device the worker takes no more of it than memd has reckoned with.
room_suffices() {
    case " $* " in *" --device "*) ;; *) return ;; esac
    local used planned
    used=$(metric worker 'moed_worker_device_bytes{use="scratch"}') planned=$(metric memd 'moed_memd_device_bytes{use="scratch"}')
    [ "$used" -le $((planned - STREAM_BYTES)) ] || fail "$*: $used bytes of scratch, planned $planned"
}
logits() { # logits FILE [OPTION]...: and FILE.nll, the mean negative log-likelihood by them and by `moed perplexity`
    local file=$1
    shift
    "$MOED" up "$@" --kv-type f32 "$MODEL" >/dev/null || fail "up $*"
    "$MOED" logits --tokens "$TOKENS" -o "$WORK/$file"
    "$MOED" perplexity "$MODEL" --tokens -f "$WORK/tokens" --json > "$WORK/perplexity"
    echo "$("$(dirname "$COMPARE")/golden-nll" "$WORK/$file" "$VOCAB" "$WORK/tokens")" \
        "$(sed -n 's/.*"nll": *\([-0-9.e]*\).*/\1/p' "$WORK/perplexity")" > "$WORK/$file.nll"
    room_suffices "$@"
    "$MOED" down >/dev/null
}
# distance FILE: of the two, as a part of them; that of exact sums of the same logits is the digits' alone
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
DEVICE=(--device "$MOED_TEST_DEVICE,vram=100%" --policy ondemand)
WITHOUT="long prompts are computed without cuBLAS"

logits want --reproducible
logits reproducible --reproducible "${DEVICE[@]}"
same reproducible
logits many "${DEVICE[@]}"
if grep -q "$WITHOUT" "$RUN/worker.log"; then
    same many
    skip "there is no cuBLAS here"
fi
near many
! cmp -s "$WORK/want" "$WORK/many" || fail "$NAME: nothing went through cuBLAS"
below $DIGITS "$(distance many)" || fail "$NAME: the output head did not go through cuBLAS: $(cat "$WORK/many.nll")"
case $(basename "${MOED_CUDA_MODULE:-}") in *-sim.so) ;; *) exit ;; esac

MOED_CUSIM_BLAS=0 logits without "${DEVICE[@]}"
grep -q "$WITHOUT" "$RUN/worker.log" || fail "the worker does not say that there is no cuBLAS"
same without
# calls CALL N: the N-th call, the first that is not for trying, is made by a prompt (whose worker then ends)
calls() {
    MOED_CUSIM_FAIL=$1:$2 "$MOED" up "${DEVICE[@]}" --kv-type f32 "$MODEL" >/dev/null
    ! "$MOED" logits --tokens "$TOKENS" -o "$WORK/failed" 2>/dev/null || fail "$NAME: $1 was not called"
    grep -q "$1: " "$RUN/worker.log" || fail "no word of the call that failed"
    "$MOED" down >/dev/null
}
case $NAME in
*BF16*) # an older device: float32 takes its place, and rounds less
    export MOED_CUSIM_BLAS_REFUSES=bf16
    logits refused "${DEVICE[@]}"
    grep -q "no products of BF16 on this device: weights of BF16 are multiplied as float32" "$RUN/worker.log" ||
        fail "the worker does not say what cuBLAS refuses"
    LIMIT=1e-5 near refused
    calls cublasGemmEx 4 ;;
*deepseek2*) # its heads' matrices are the only ones that are multiplied together
    calls cublasGemmStridedBatchedEx 4 ;;
esac
