#!/bin/bash
# Drafts of tokens (--speculate) change no answer: greedy and sampled ones, with penalties and log-probabilities, guided by a grammar,
# several at once, from a cold and a warm cache, on every device and with each type of the KV cache. The figures of `moed run`, `moed ps` and the
# metrics agree, and what `--speculate` does not take is refused.
#   [MOED_TEST_SHORT=1] speculation.sh MOED MODEL [MODULE]     MODULE: the simulated CUDA device; MOED_TEST_SHORT: less of it
MOED=$1 MODEL=$2 MODULE=${3:-}
. "$(dirname "$0")/../deployment.sh"
N=60
[ -z "$MODULE" ] || { export MOED_CUDA_MODULE=$MODULE; N=30; } # a slow device
TEXT="The owl hunts at night. The fox sleeps in a hole. Bees make honey. The owl hunts at night. The fox sleeps in a hole. Bees"
free="--ignore-end --temp" owls='{"type":"array","items":{"enum":["owl","fox"]},"minItems":40}'
strings='{"type":"array","items":{"type":"string","pattern":"^(owl|fox|hole)$"},"minItems":40}'
options=("$free 0" "$free 0 --repeat-penalty 1.05 --logprobs 2" "$free 0.4 --seed 5" "$free 0.6 --top-p 0.8 --dry-multiplier 0.2 --seed 7"
    "$free 0.5 --mirostat 2 --mirostat-tau 2 --mirostat-eta 0.1 --seed 2" "$free 0 --min-tokens 30 --stop . --stop hole"
    "--temp 0 --json-schema $owls" "--temp 0.8 --seed 3 --json-schema $strings")
guided=6 # the first of those that a grammar guides

up() { start_deployment "$MODEL" --ctx 512 --parallel 4 "$@"; }
# What an answer says, without its seed, its times, and what it took from the cache or from drafts.
said() { sed -e 's/, "seed".*//' "$1"; }
field() { sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" "$2"; }
# ask FILE: all at once, then one more time; each turn's answers to FILE.
ask() {
    : > "$WORK/$1"
    for turn in 1 2; do
        local pids=() i
        for i in "${!options[@]}"; do
            # shellcheck disable=SC2086 # words
            "$MOED" run -n $N --json ${options[$i]} "$TEXT" > "$WORK/answer-$i" & pids+=($!)
        done
        for i in "${!pids[@]}"; do wait "${pids[$i]}" || fail "answer $i, turn $turn"; done
        for i in "${!options[@]}"; do said "$WORK/answer-$i" >> "$WORK/$1"; done
    done
}
check() { # check HOW OPTION...: the same answers with drafts as without, for these options of `moed up`
    local how=$1 drafted accepted; shift
    up "$@" --speculate off
    ask want
    [ "$(metric worker moed_worker_drafted_tokens_total)" = 0 ] || fail "$how: drafts without --speculate"
    "$MOED" down >/dev/null
    up "$@" --speculate 6
    ask got
    cmp -s "$WORK/want" "$WORK/got" || { diff "$WORK/want" "$WORK/got" | cut -c1-300 >&2 || true; fail "$how: other answers with drafts"; }
    drafted=$(metric worker moed_worker_drafted_tokens_total) accepted=$(metric worker moed_worker_accepted_tokens_total)
    [ "$accepted" -gt 0 ] && [ "$drafted" -gt "$accepted" ] || fail "$how: $accepted of $drafted drafts accepted"
    "$MOED" ps | grep -q "drafts: $drafted tokens computed" || fail "$how: moed ps does not say $drafted drafts"
    [ "$(field accepted_tokens "$WORK/answer-0")" -gt 0 ] || fail "$how: no draft of the greedy answer was right"
    [ "$guided" -ge ${#options[@]} ] || [ "$(field accepted_tokens "$WORK/answer-$guided")" -gt 0 ] ||
        fail "$how: no draft of the answer that a grammar guides was right"
    "$MOED" down >/dev/null
    say "ok: $how, $accepted of $drafted drafts accepted"
}

if [ -n "$MODULE" ]; then
    if [ -n "${MOED_TEST_SHORT:-}" ]; then
        options=("${options[@]:0:3}")
    else
        check "CUDA device" --device cuda:0,vram=60%
    fi
    check "CUDA device, q8_0 keys" --device cuda:0,vram=100% --kv-type q8_0
    exit
fi
check host
check "f32 keys" --kv-type f32
check "q8_0 keys" --kv-type q8_0 --cpuexec
check "emulated device" --device emu:vram=40%,link=2G --kv-type f16

# A request's own limit, the metrics and the access log.
up --speculate 3 --http 127.0.0.1:0
post() { # post LIMIT: an answer with speculative.n_max LIMIT to $WORK/answer
    curl -sS "http://127.0.0.1:$(port_of "$RUN/http.log")/completion" -o "$WORK/answer" \
        -d "{\"prompt\":\"$TEXT\",\"n_predict\":$N,\"temperature\":0,\"speculative.n_max\":$1,\"speculative.n_min\":0,\"speculative.p_min\":0.5}"
    sed 's/.*"content":"\(\([^"\\]\|\\.\)*\)".*/\1/' "$WORK/answer" > "$WORK/text-$1"
    cmp -s "$WORK/text-null" "$WORK/text-$1" || fail "speculative.n_max $1: another answer"
}
for limit in null 0 2; do
    most=$limit
    [ $limit != null ] || most=3
    post $limit
    drafted=$(field draft_n "$WORK/answer") accepted=$(field draft_n_accepted "$WORK/answer") answered=$(field predicted_n "$WORK/answer")
    case $limit in
    0) [ -z "$drafted" ] || fail "speculative.n_max 0: $drafted drafts" ;;
    *) [ "$accepted" -gt 0 ] && [ "$drafted" -le $((most * (answered - 1 - accepted))) ] ||
        fail "speculative.n_max $limit: $drafted drafts, $accepted accepted, $answered tokens" ;;
    esac
    wait_until 10 grep -q "POST /completion .* out=$answered${drafted:+ drafted=$drafted accepted=$accepted} first=" "$RUN/http.log" ||
        fail "speculative.n_max $limit: the access log has no drafted=$drafted accepted=$accepted"
done
"$MOED" metrics worker > "$WORK/metrics"
accepted=$(sed -n 's/^moed_worker_accepted_tokens_total //p' "$WORK/metrics")
by_position=$(awk '/^moed_worker_accepted_tokens_per_position_total/ { n += $2 } END { print n }' "$WORK/metrics")
[ "$accepted" -gt 0 ] && [ "$by_position" = "$accepted" ] || fail "$accepted drafts accepted, by position $by_position"
"$MOED" down >/dev/null

# A model with recurrent layers has no drafts, and this is said.
"$MOED" mkmodel --arch qwen3next --layers 4 --hidden 64 --heads 4 --kv-heads 2 --head-dim 32 --experts 4 --top-k 2 --expert-width 64 --vocab 300 \
    -o "$WORK/recurrent.gguf" >"$WORK/mkmodel" 2>&1 || fail "mkmodel: $(cat "$WORK/mkmodel")"
"$MOED" up "$WORK/recurrent.gguf" --ctx 256 --speculate 4 >/dev/null 2>"$WORK/up" || fail "no deployment: $(cat "$WORK/up")"
grep -qF -- "--speculate 4: this model has recurrent layers; nothing is drafted" "$WORK/up" || fail "moed up says nothing of drafts: $(cat "$WORK/up")"
"$MOED" ps | grep -qF "drafts: none, because the model has recurrent layers" || fail "moed ps says nothing of drafts: $("$MOED" ps)"
"$MOED" down >/dev/null

up --speculate auto
ask got
"$MOED" metrics worker > "$WORK/metrics"
for name in plain_step_seconds 'declined_drafts_total{.*reason="account".*}'; do
    grep -q "^moed_worker_$name" "$WORK/metrics" || fail "--speculate auto has no moed_worker_$name"
done
"$MOED" down >/dev/null
for wrong in 0 16 on; do
    code=0
    "$MOED" up "$MODEL" --speculate $wrong 2>"$WORK/up" || code=$?
    [ $code -eq 2 ] && grep -qF -- "--speculate $wrong: give auto, off or 1 to 15" "$WORK/up" || fail "--speculate $wrong: $code, $(cat "$WORK/up")"
done
