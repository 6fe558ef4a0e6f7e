#!/bin/bash
# The KV cache on a CUDA device, which tests/cusim simulates, while memd lets it have more and less: answers have the tokens of
# `--device host`, requests wait for room in order, who can never have it is refused, an idle worker gives memory back too.
#   kv_pool.sh MOED MODULE KV-LIMIT MODEL
MOED=$1 MODULE=$2 KV_LIMIT=$3 MODEL=$4
. "$(dirname "$0")/../deployment.sh"
[ -e "$MODULE" ] || skip "$MODULE is not here"
export MOED_CUDA_MODULE=$MODULE
prompts=("Once upon a time" "int main(void) {" "0 1 2 3")
CTX=256 PARALLEL=4
PAGES=$((PARALLEL * CTX / 64)) # of 64 positions

up() { "$MOED" up "$MODEL" --ctx $CTX --parallel $PARALLEL --reproducible "$@" >/dev/null 2>"$WORK/up" || { cat "$WORK/up" >&2; fail "up $*"; }; }
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
settles() { wait_until 10 has "$1" && wait_until 10 idle "$1" || fail "$1 pages are allowed: $(kv_bytes) bytes, $(pages reserved) pages reserved, $(pages free) free"; }
same() { cmp -s "$WORK/want-$1" "$WORK/got" || fail "$2: other tokens than on the host"; }
tokens() { "$MOED" run -n "$1" --ignore-end --temp 0 --json "$2" | sed -n 's/.*"tokens": *\(\[[^]]*\]\).*/\1/p'; }

up
ask_all 12 want-short
ask_all 150 want-long # three pages, with the prompt
"$MOED" down >/dev/null
up --device cuda:0,vram=30% --policy lru
PAGE_BYTES=$(($(kv_bytes) / PAGES))
settles $PAGES

# Idle, it comes down to what is allowed, and up again.
for n in 5 $PAGES 1 7; do
    limit $n
    settles $n
done
ask_all 12 got
same short "seven pages"
settles 7
say "ok: an idle worker"

# Room for one long request at a time: the others wait for it, and come.
limit 4
settles 4
ask_all 150 got & asking=$!
waiting() { [ "$(metric worker moed_worker_requests_waiting)" -gt 0 ] && [ "$(metric worker moed_worker_requests_running)" -lt $PARALLEL ]; }
wait_until 20 waiting || fail "nobody waits"
wait $asking || fail "answers while there is little room"
same long "one request at a time"
settles 4

# Who can never have room is refused, in one line; who can is served after.
limit 2
settles 2
! "$MOED" run -n 150 --ignore-end "${prompts[0]}" >/dev/null 2>"$WORK/refused" || fail "a request of three pages has room in two"
grep -qE "the request may have [0-9]+ positions, the KV cache has room for 128 in all: ask for fewer tokens" "$WORK/refused" ||
    fail "refused with: $(cat "$WORK/refused")"
ask_all 12 got
same short "two pages"
say "ok: little room"

# While answers are under way. Below three pages nobody long is admitted, so not below that.
for round in 1 2; do
    limit max
    ask_all 150 got & asking=$!
    for n in 3 $PAGES 6 4 9 3 5; do
        sleep 0.15
        limit $n
    done
    wait $asking || fail "answers while the limit changes"
    same long "the limit changes, round $round"
    settles 5
done
tokens 150 "${prompts[0]}" > "$WORK/got"
cmp -s "$WORK/got" <(head -n 1 "$WORK/want-long") || fail "another answer after all that"

# A worker that starts takes what is allowed, and no more.
worker=$(pid_of worker)
kill -9 "$worker"
restarted() { [ "$(pid_of worker)" != "$worker" ] && "$MOED" run -n 1 x; }
wait_until 20 restarted || fail "no worker after its death"
settles 5
limit max
settles $PAGES
ask_all 150 got
same long "after all that"
say "ok: room comes and goes"
