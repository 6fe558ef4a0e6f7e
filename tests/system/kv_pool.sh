#!/bin/bash
# The KV cache on a CUDA device, which tests/cusim simulates, while memd raises and lowers its limit. Answers have the tokens of
# `--device host`. Requests wait in order for free pages. The worker refuses a request that can never have enough pages. An idle
# worker returns memory too.
#   kv_pool.sh MOED MODULE KV-LIMIT MODEL
MOED=$1 MODULE=$2 KV_LIMIT=$3 MODEL=$4
. "$(dirname "$0")/../deployment.sh"
[ -e "$MODULE" ] || skip "$MODULE is not here"
export MOED_CUDA_MODULE=$MODULE
# repeat N TEXT: prompts of some 104 tokens. Two pages hold one with 12 more tokens, three with 40.
repeat() { printf "%0.s$2 " $(seq "$1"); }
prompts=("$(repeat 21 "Once upon a time")" "$(repeat 17 "int main(void) {")" "$(repeat 13 "0 1 2 3")")
SHORT=12 LONG=40
CTX=256 PARALLEL=4
PAGES=$((PARALLEL * CTX / 64)) # of 64 positions

up() { start_deployment "$MODEL" --ctx $CTX --parallel $PARALLEL --reproducible "$@"; }
kv_bytes() { metric worker 'moed_worker_device_bytes{use="kv"}'; }
pages() { metric worker "moed_worker_kv_pages{state=\"$1\"}"; }
limit() { # limit PAGES
    local bytes=$1 code=0
    [ "$1" = max ] || bytes=$(($1 * PAGE_BYTES))
    "$KV_LIMIT" "$(pid_of memd)" "$bytes" || code=$?
    [ $code -ne 77 ] || skip "memd's memory cannot be written from outside"
    [ $code -eq 0 ] || fail "kv-limit $1"
}
has() { [ "$(kv_bytes)" = $(($1 * PAGE_BYTES)) ]; }
idle() { [ "$(pages reserved)" = 0 ] && [ "$(pages free)" = "$1" ]; }
settles() { wait_until 30 has "$1" && wait_until 30 idle "$1" || fail "a limit of $1 pages: $(kv_bytes) bytes, $(pages reserved) pages reserved, $(pages free) free"; }
same() { cmp -s "$WORK/want-$1" "$WORK/got" || fail "$2: other tokens than on the host"; }
tokens() { "$MOED" run -n "$1" --ignore-end --temp 0 --json "$2" | sed -n 's/.*"tokens": *\(\[[^]]*\]\).*/\1/p'; }

up
ask_all $SHORT want-short
ask_all $LONG want-long
"$MOED" down >/dev/null
up --device cuda:0,vram=30% --policy lru
PAGE_BYTES=$(($(kv_bytes) / PAGES))
settles $PAGES

# An idle worker follows the limit down and up.
for n in 5 $PAGES 1 7; do
    limit $n
    settles $n
done
ask_all $SHORT got
same short "seven pages"
settles 7
say "ok: an idle worker"

# Pages for one long request at a time: the other requests wait for them and run later.
limit 4
settles 4
ask_all $LONG got & asking=$!
waiting() { [ "$(metric worker moed_worker_requests_waiting)" -gt 0 ] && [ "$(metric worker moed_worker_requests_running)" -lt $PARALLEL ]; }
wait_until 20 waiting || fail "no request waits"
wait $asking || fail "answers with few pages"
same long "one request at a time"
settles 4

# The worker refuses a request that needs more pages than the limit, in one line. It serves smaller requests afterwards.
limit 2
settles 2
! "$MOED" run -n $LONG --ignore-end "${prompts[0]}" >/dev/null 2>"$WORK/refused" || fail "the worker accepts a request of three pages with a limit of two"
grep -qE "the request may need [0-9]+ positions, but the KV cache holds at most 128: ask for fewer tokens" "$WORK/refused" ||
    fail "the message of the refusal: $(cat "$WORK/refused")"
ask_all $SHORT got
same short "two pages"
say "ok: few pages"

# The limit changes while requests run. It stays at three pages at least: below that the worker refuses a long request.
answer_on() {
    until [ -e "$WORK/stop" ]; do
        ask_all $LONG got
        same long "the limit changes"
    done
}
goes_on() { [ "$(metric worker moed_worker_generated_tokens_total)" -gt "$made" ]; }
limit max
answer_on & asking=$!
for n in 3 $PAGES 6 4 9 3 5 $PAGES 3 5; do
    made=$(metric worker moed_worker_generated_tokens_total)
    wait_until 60 goes_on || { touch "$WORK/stop"; fail "no tokens while the limit changes"; }
    limit $n
done
touch "$WORK/stop"
wait $asking || fail "answers while the limit changes"
settles 5
tokens $LONG "${prompts[0]}" > "$WORK/got"
cmp -s "$WORK/got" <(head -n 1 "$WORK/want-long") || fail "another answer after the changes of the limit"

# A worker that starts allocates what the limit allows, and no more.
worker=$(pid_of worker)
kill -9 "$worker"
restarted() { [ "$(pid_of worker)" != "$worker" ] && "$MOED" run -n 1 x; }
wait_until 20 restarted || fail "no worker after its death"
settles 5
limit max
settles $PAGES
ask_all $LONG got
same long "after the worker's death"
say "ok: changes of the limit"
