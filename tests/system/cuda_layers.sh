#!/bin/bash
# Models whose layers differ from each other, with the dense part on a CUDA device, which tests/cusim simulates: the logits have the
# bits of the host, as one batch and token by token, with all experts resident and with misses. Conversations go on from cached pages,
# and from snapshots of states where the model has recurrent layers.
#   cuda_layers.sh MOED MODULE MODEL...     The first two models run with too little memory for all experts, too. A MODEL without a dot
#   is an architecture: the test makes a model of it, with quantised weights.
MOED=$1 MODULE=$2
shift 2
. "$(dirname "$0")/../deployment.sh"
[ -e "$MODULE" ] || skip "$MODULE is not here"
export MOED_CUDA_MODULE=$MODULE
export MOED_DEVICE_POISON=1 # a wrong residency bit changes the logits
STREAM_BYTES=$((8 << 20))
ids() { # ids FIRST N: N ids of a vocabulary of 320
    awk -v first="$1" -v n="$2" 'BEGIN { for (i = 0; i < n; i++) printf "%s%d", i ? "," : "", (first + 37 * i + i * i) % 256 }'
}
# The rows of 100 tokens go through BLAS where that is allowed.
logits() { # logits FILE
    "$MOED" logits --tokens "$(ids 9 40)" --stepwise -o "$1.steps" # first: experts are missed
    "$MOED" logits --tokens "$(ids 5 100)" -o "$1.batch"
}
field() { sed -n "s/.*\"$1\": *\(\[[^]]*\]\|[0-9]*\).*/\1/p" "$2"; }
# Turns of two conversations with the same beginning, with as many tokens of each prompt from the cache as on the host.
turns() { # turns FILE
    local first shared answer
    first=$(ids 1 150) shared=$(ids 1 90),$(ids 70 40)
    : >"$1"
    for tokens in "$first" "$first" "$shared" "$shared,7"; do
        "$MOED" run -n 12 --ignore-end --temp 0 --json --logprobs 1 --tokens "$tokens" >"$WORK/answer" || fail "no answer"
        answer=$(field tokens "$WORK/answer")
        echo "$(field cached_tokens "$WORK/answer") $answer $(grep -o '"logprob": *[-0-9.]*' "$WORK/answer" | tr -d '\n')" >>"$1"
    done
    answer=$(field tokens "$WORK/answer" | tr -d '[] ') # the next turn goes on behind the answer
    "$MOED" run -n 12 --ignore-end --temp 0 --json --tokens "$shared,7,$answer,11,12" >"$WORK/answer" || fail "no answer"
    echo "$(field cached_tokens "$WORK/answer") $(field tokens "$WORK/answer")" >>"$1"
}
same() { # same FILE WHAT
    cmp -s "$WORK/want.$1" "$WORK/got.$1" || { diff "$WORK/want.$1" "$WORK/got.$1" >&2 || :; fail "$MODEL: $2: other bits than on the host"; }
}
segments() { metric worker "moed_worker_segments_total{where=\"$1\"}"; }
DEVICES="cuda:0 cuda:0,vram=70%"
DONE=0
for MODEL; do
    case $(basename "$MODEL") in *.*) ;; *)
        "$MOED" mkmodel --arch "$MODEL" --type Q8_0 --layers 6 --hidden 64 --heads 4 --kv-heads 2 --head-dim 48 --experts 8 --top-k 2 \
            --expert-width 32 --vocab 320 -o "$WORK/$MODEL.gguf" >/dev/null
        MODEL=$WORK/$MODEL.gguf ;;
    esac
    "$MOED" up "$MODEL" --device host --reproducible >/dev/null 2>"$WORK/up" || fail "up: $(cat "$WORK/up")"
    logits "$WORK/want"
    turns "$WORK/want.turns"
    "$MOED" down >/dev/null
    [ "$(awk 'NR > 1 && $1 > 0' "$WORK/want.turns" | wc -l)" -ge 3 ] || { cat "$WORK/want.turns" >&2; fail "$MODEL: too few turns began with cached tokens"; }
    for device in $DEVICES; do
        "$MOED" up "$MODEL" --device $device --reproducible --policy lru --assign load-all >/dev/null 2>"$WORK/up" || fail "up: $(cat "$WORK/up")"
        logits "$WORK/got"
        same batch "$device, 100 tokens at once"
        same steps "$device, token by token"
        turns "$WORK/got.turns"
        same turns "$device, turns"
        [ "$(metric memd 'moed_memd_device_bytes{use="dense"}')" -gt 0 ] || fail "$MODEL: no dense weights on the device"
        used=$(metric worker 'moed_worker_device_bytes{use="scratch"}')
        planned=$(($(metric memd 'moed_memd_device_bytes{use="scratch"}') - STREAM_BYTES))
        [ "$used" -le "$planned" ] && [ $((2 * used)) -ge "$planned" ] || fail "$MODEL: $used bytes of scratch, planned $planned"
        [ $device != cuda:0 ] || [ "$(metric worker moed_worker_layers_replayed_total)" -gt 0 ] || fail "$MODEL: no layer was a graph"
        say "$device: $(metric worker moed_worker_device_only_layers_missed_total) device-only layers missed an expert"
        "$MOED" down >/dev/null
    done
    say "ok: $(basename "$MODEL")"
    DONE=$((DONE + 1))
    [ $DONE -lt 2 ] || DEVICES=cuda:0
done
