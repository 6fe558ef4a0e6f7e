#!/bin/bash
# moed-bench: prompts of several streams that take longer than the first answer, and rows that cannot be measured.
#   bench.sh MOED MODEL
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"
BENCH=$(dirname "$MOED")/../bench/moed-bench
[ -x "$BENCH" ] || BENCH=$(dirname "$MOED")/moed-bench
[ -x "$BENCH" ] || skip "moed-bench is not built"

# bench OPTION...: the decode speed of each row, or a dash, a line each.
bench() { "$BENCH" --runs 1 "$@" 2>"$WORK/err" >"$WORK/table"; }
decode() { awk -F'|' 'NR > 2 && NF > 8 { print $4, $5, $7 }' "$WORK/table" | tr -s ' '; }

bench --model "$MODEL" --prompt-tokens 1,512 --generate 16 --parallel 1,4 || { cat "$WORK/err" >&2; fail "moed-bench"; }
[ "$(decode | grep -cE '^ ?[14] (1|512) [0-9.]+ \(')" = 4 ] || fail "4 rows: $(cat "$WORK/table")"
grep -q 'median of 1 runs' "$WORK/table" || fail "no line below the table"
say "ok: several streams with long prompts"

start_deployment "$MODEL" --parallel 2 --ctx 512
for _ in 1 2; do
    bench --name default --prompt-tokens 128,256,448 --generate 2 --parallel 1 || { cat "$WORK/err" >&2; fail "moed-bench"; }
done
cached=$(metric worker moed_worker_cached_prompt_tokens_total)
[ "$cached" -lt 64 ] || fail "$cached tokens of prompts were in the KV cache"
say "ok: each prompt is a new one"

bench --name default --prompt-tokens 1,500 --generate 16 --parallel 1,4 && fail "a row failed, but not moed-bench"
[ "$(decode | grep -E '^ ?1 1 ' | grep -cE '[0-9.]+ \(')" = 1 ] || fail "1 stream: $(cat "$WORK/table")"
[ "$(decode | grep -c -- '- $')" = 3 ] || fail "3 rows have no figure: $(cat "$WORK/table")"
grep -q '4 streams, prompt of 1 tokens: [12] of 4 answers began .*larger --parallel' "$WORK/err" || fail "no line on --parallel: $(cat "$WORK/err")"
grep -q '1 streams, prompt of 500 tokens: .*context of 512: start it with a larger --ctx' "$WORK/err" || fail "no line on --ctx: $(cat "$WORK/err")"
say "ok: rows that cannot be measured"
"$MOED" down >/dev/null

# The weights' share of the memory's rate: of the host alone.
share() { awk -F'|' 'NR == 3 { print $10 }' "$WORK/table" | tr -d ' '; }
start_deployment "$MODEL" --device host --speculate off
bench --name default --prompt-tokens 1 --generate 8 --parallel 1 || fail "moed-bench"
case $(share) in [0-9]*%) ;; *) fail "host: no share of the memory's rate: $(cat "$WORK/table")" ;; esac
"$MOED" down >/dev/null
start_deployment "$MODEL" --device emu:vram=100%,link=4G
bench --name default --prompt-tokens 1 --generate 8 --parallel 1 || fail "moed-bench"
[ "$(share)" = - ] || fail "device: a share of the memory's rate: $(cat "$WORK/table")"
say "ok: the weights' share of the memory's rate"
