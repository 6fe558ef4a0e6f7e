#!/bin/bash
# A long prompt on a CUDA device: without --reproducible its products go through cuBLAS, and its logits are as near to the
# definition's as the golden ones are allowed to be from the exact ones; with it, or without a cuBLAS (which the simulation can be
# told), they have the definition's bits.
#   prefill.sh MOED COMPARE DIRECTORY NAME LIMIT      MOED_TEST_DEVICE: cuda:N
MOED=$1 COMPARE=$2 DIRECTORY=$3 NAME=$4 LIMIT=$5 MODEL=$3/$4.gguf
. "$(dirname "$0")/../deployment.sh"
TOKENS=$(tr -s ' \n' ',,' < "$DIRECTORY/tokens.txt" | sed 's/,$//')
TOKENS=$TOKENS,$TOKENS,$TOKENS # 96
VOCAB=320
STREAM_BYTES=$((8 << 20)) # of scratch: the driver's, for a stream (DEVICE_STREAM_BYTES)

# On a device the worker takes no more of it than memd has reckoned with.
room_suffices() {
    case " $* " in *" --device "*) ;; *) return ;; esac
    local used planned
    used=$(metric worker 'moed_worker_device_bytes{use="scratch"}') planned=$(metric memd 'moed_memd_device_bytes{use="scratch"}')
    [ "$used" -le $((planned - STREAM_BYTES)) ] || fail "$*: $used bytes of scratch, planned $planned"
}
logits() { # logits FILE [OPTION]...
    local file=$1
    shift
    "$MOED" up "$@" --kv-type f32 "$MODEL" >/dev/null || fail "up $*"
    "$MOED" logits --tokens "$TOKENS" -o "$WORK/$file"
    room_suffices "$@"
    "$MOED" down >/dev/null
}
same() { cmp -s "$WORK/want" "$WORK/$1" || fail "$NAME, $1: other bits than the definition's"; }
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
printf '%-14s %-10s ' "$NAME" "96 tokens"
"$COMPARE" "$WORK/many" "$WORK/want" "$VOCAB" relative "$LIMIT"
! cmp -s "$WORK/want" "$WORK/many" || fail "nothing went through cuBLAS"
case $(basename "${MOED_CUDA_MODULE:-}") in *-sim.so)
    MOED_CUSIM_BLAS=0 logits without "${DEVICE[@]}"
    grep -q "$WITHOUT" "$RUN/worker.log" || fail "the worker does not say that there is no cuBLAS"
    same without ;;
esac
