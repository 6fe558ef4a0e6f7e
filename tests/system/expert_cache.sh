#!/bin/bash
# Where an expert was computed never shows: the same tokens on the host and on an emulated device, for every policy, several
# sizes of its memory and of segments, alone and among others, and while the policy is changed.
#   expert_cache.sh MOED MODEL...     each model by itself
MOED=$1
shift
. "$(dirname "$0")/../deployment.sh"

prompts=("Once upon a time" "$(seq -s ' ' 1 60)" "int main(void) {" "0 1 2 3")
check() { # check WHAT
    ask_all 12 got
    cmp -s "$WORK/want" "$WORK/got" || { diff "$WORK/want" "$WORK/got" >&2; fail "$1: other tokens than on the host"; }
}

for model in "$@"; do
    say "$(basename "$model")"
    # the cut into segments is part of the sum's definition: the same on every device
    "$MOED" up "$model" --reproducible --segment-bytes 32768 >/dev/null 2>&1
    ask_all 12 want
    "$MOED" down >/dev/null 2>&1
    for device in emu:vram=100%,link=2G emu:vram=40%,link=500M emu:vram=15%,link=100M,speed=0.5; do
        "$MOED" up "$model" --reproducible --device "$device" --policy moed --segment-bytes 32768 >/dev/null 2>"$WORK/up" || { cat "$WORK/up" >&2; fail "$device"; }
        for policy in moed ondemand static lru lfu threshold qstar layerwise dali; do
            "$MOED" policy "$policy" >/dev/null || fail "policy $policy"
            check "$device, $policy"
        done
        # while an answer is under way
        ask_all 12 got & asking=$!
        for policy in lru dali ondemand moed; do sleep 0.1; "$MOED" policy "$policy" >/dev/null; done
        wait $asking || fail "answers while the policy changes"
        cmp -s "$WORK/want" "$WORK/got" || fail "$device: other tokens while the policy changes"
        slots_add_up || fail "$device: slots do not add up"
        "$MOED" policy | sed -n 's/^computed */  /p'
        "$MOED" down >/dev/null 2>&1
        say "  ok: $device"
    done
done
