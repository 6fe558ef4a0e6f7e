#!/bin/bash
# What the conversation cache and mixed steps are worth, on one deployment; medians of ROUNDS.
#   second turn   time to the first token of a conversation of LENGTH tokens and 256 new ones, of the 256 alone, and of all without
#                 a cache
#   a prompt beside an answer   an answer's time for each token while a prompt of LENGTH tokens is computed, and the prompt's time,
#                 both over their time alone
#   agents        ten conversations of LENGTH / 2 tokens that take turns, TURNS each: tokens of prompts and answers a second
#   [TURNS=3] conversations.sh MOED MODEL [ROUNDS [LENGTH [DEVICE]]]
# The prompts are random token ids, of which each model has enough. The model must be trained for 2 * LENGTH tokens.
MOED=$1 MODEL=$2 ROUNDS=${3:-5} LENGTH=${4:-8000} DEVICE=${5:-host}
set -eu
. "$(dirname "$0")/figures.sh"
WORK=$(mktemp -d "${TMPDIR:-/tmp}/moed-conversations-XXXXXX")
export MOED_RUN=$WORK/run
trap '"$MOED" down >/dev/null 2>&1 || true; rm -rf "$WORK"' EXIT
NEW=256 ANSWER=32

ids() { awk -v seed="$1" -v n="$2" 'BEGIN { srand(seed); for (i = 0; i < n; i++) printf "%s%d", i ? "," : "", 300 + int(rand() * 1700) }'; }
# ask FILE TOKENS N: an answer of N tokens; prints the time to its first token.
ask() { "$MOED" run --tokens --temp 0 --ignore-end --json -n "$3" - <<< "$2" > "$WORK/$1" && number time_to_first_token_s "$WORK/$1"; }
column() { median < "$WORK/$1.times"; }

"$MOED" up "$MODEL" --device "$DEVICE" --speculate off --ctx $((2 * LENGTH)) --parallel 16 >/dev/null
ask warm "$(ids 1 $NEW)" 1 >/dev/null

for ((round = 1; round <= ROUNDS; round++)); do
    first=$(ids $((10 * round)) "$LENGTH") new=$(ids $((10 * round + 1)) $NEW)
    ask a "$first" 1 >> "$WORK/first.times"
    ask a "$first,$new" 1 >> "$WORK/second.times"
    [ "$(number cached_tokens "$WORK/a")" -gt $((LENGTH - 100)) ] || { echo "the first turn is not in the cache" >&2; exit 1; }
    ask a "$(ids $((10 * round + 2)) $NEW)" 1 >> "$WORK/alone.times"
    # An answer alone; then beside a prompt, which begins when the answer runs.
    ask a "$(ids $((10 * round + 3)) 64)" 200 >/dev/null
    awk -v t="$(number decode_s "$WORK/a")" 'BEGIN { print t / 199 }' >> "$WORK/token.times"
    "$MOED" run --tokens --temp 0 --ignore-end --json -n 100000 - <<< "$(ids $((10 * round + 4)) 64)" > "$WORK/long" 2>/dev/null & long=$!
    sleep 0.5
    before=$("$MOED" metrics worker | awk '$1 == "moed_worker_generated_tokens_total" { print $2 }')
    ask b "$(ids $((10 * round + 5)) "$LENGTH")" 1 > "$WORK/prompt"
    after=$("$MOED" metrics worker | awk '$1 == "moed_worker_generated_tokens_total" { print $2 }')
    kill -INT $long 2>/dev/null || true; wait $long || true
    cat "$WORK/prompt" >> "$WORK/prompt.times"
    awk -v t="$(cat "$WORK/prompt")" -v n=$((after - before - 1)) 'BEGIN { print t / n }' >> "$WORK/beside.times"
done
awk -v l="$LENGTH" -v new=$NEW -v first="$(column first)" -v second="$(column second)" -v alone="$(column alone)" -v token="$(column token)" \
    -v prompt="$(column prompt)" -v beside="$(column beside)" 'BEGIN {
    printf "| first turn of %d tokens, to the first token | %.3f s |\n", l, first
    printf "| second turn, %d new tokens | %.3f s |\n", new, second
    printf "| %d tokens alone | %.3f s |\n", new, alone
    printf "| second turn / new tokens alone | %.2f |\n", second / alone
    printf "| a token of an answer alone | %.2f ms |\n", 1000 * token
    printf "| beside a prompt of %d | %.2f ms, %.2f times |\n", l, 1000 * beside, beside / token
    printf "| the prompt beside the answer | %.3f s, %.0f %% of its speed alone |\n", prompt, 100 * first / prompt }'

# Agents: each turn sends all again and some new tokens. agents clear: the cache is empty before each turn.
agents() {
    local turn agent start pids
    start=$(date +%s.%N)
    for ((turn = 1; turn <= ${TURNS:-3}; turn++)); do
        pids=()
        [ "$1" = keep ] || "$MOED" cache --clear >/dev/null
        for ((agent = 0; agent < 10; agent++)); do
            prompt=$(ids $((1000 + agent)) $((LENGTH / 2)))
            for ((t = 1; t < turn; t++)); do prompt+=,$(ids $((2000 + 10 * agent + t)) $NEW); done
            ask "agent-$agent" "$prompt" $ANSWER >/dev/null & pids+=($!)
        done
        for pid in "${pids[@]}"; do wait "$pid"; done
    done
    awk -v s="$start" -v e="$(date +%s.%N)" 'BEGIN { print e - s }'
}
without=$(agents clear)
"$MOED" cache --clear >/dev/null
with=$(agents keep)
awk -v l=$((LENGTH / 2)) -v turns="${TURNS:-3}" -v new=$NEW -v answer=$ANSWER -v with="$with" -v without="$without" 'BEGIN {
    tokens = 10 * (turns * (l + answer) + new * turns * (turns - 1) / 2)
    printf "| ten agents of %d tokens, %d turns | %.0f tokens/s |\n", l, turns, tokens / with
    printf "| the same, each turn without a cache | %.0f tokens/s |\n", tokens / without }'
