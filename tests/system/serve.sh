#!/bin/bash
# A deployment as a person uses it: up, two answers at once from one loaded model, cancel, pipes, questions, down.
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"

code() { set +e; "$@" >"$WORK/out" 2>"$WORK/err"; CODE=$?; set -e; }

"$MOED" up "$MODEL" --ctx 1024 2>/dev/null
code "$MOED" up "$MODEL"
[ $CODE -eq 4 ] || fail "a second up: exit code $CODE, expected 4"

# Two frontends at once; both answer, one model is loaded.
"$MOED" run -n 40 --ignore-end "The quick brown fox" > "$WORK/a" &
a=$!
"$MOED" run -n 40 --ignore-end "Once upon a time there was" > "$WORK/b" &
b=$!
wait $a || fail "first answer"
wait $b || fail "second answer"
[ -s "$WORK/a" ] && [ -s "$WORK/b" ] || fail "an answer is empty"
[ "$(metric memd moed_memd_leases)" = 1 ] || fail "expected the worker alone to hold the pool"
experts=$(metric worker 'moed_worker_experts_total{where="worker"}')
bytes=$(metric worker moed_worker_expert_weight_bytes_total)
[ "${experts%.*}" -gt 0 ] || fail "the worker computed no expert"
awk -v n="$experts" -v bytes="$bytes" 'BEGIN { exit !(bytes > 1000 * n) }' || fail "$experts experts, $bytes bytes of them"
"$MOED" metrics > "$WORK/metrics" 2> "$WORK/err" && [ ! -s "$WORK/err" ] || fail "metrics of all: $(cat "$WORK/err")"
code "$MOED" metrics cpuexec
[ $CODE -eq 1 ] && grep -q "has no cpuexec" "$WORK/err" || fail "metrics of a cpuexec that is not there: $CODE $(cat "$WORK/err")"
! "$MOED" ps | grep -q cpuexec || fail "ps shows a cpuexec"

# Standard input to the byte, JSON, stop strings, limits.
printf 'Hello\0world' | "$MOED" run -n 4 --json - > "$WORK/json"
grep -q '"generated_tokens": 4' "$WORK/json" || fail "JSON: $(cat "$WORK/json")"
text=$("$MOED" run -n 30 --ignore-end "Tell me")
stop=${text:2:3}
short=$("$MOED" run -n 30 --ignore-end --stop "$stop" "Tell me")
case $text in "$short"*) ;; *) fail "stop string: '$short' does not begin '$text'" ;; esac
[ ${#short} -lt ${#text} ] || fail "stop string did not stop"
case $short in *"$stop"*) fail "the stop string was sent" ;; esac

# Tokens that come fast share messages: none is lost, and there are no more of these than tokens and ends.
sent() { metric worker moed_worker_token_events_total; }
told=$(metric worker moed_worker_generated_tokens_total) events=$(sent)
"$MOED" run -n 200 --ignore-end --json "Once upon a time" > "$WORK/json"
grep -q '"generated_tokens": 200' "$WORK/json" || fail "JSON: $(cat "$WORK/json")"
[ $(($(metric worker moed_worker_generated_tokens_total) - told)) -eq 200 ] || fail "200 tokens are counted as others"
messages=$(($(sent) - events))
[ "$messages" -ge 2 ] && [ "$messages" -le 200 ] || fail "200 tokens in $messages messages"

# The same seed gives the same answer; the context is a limit said before any work.
one=$("$MOED" run -n 20 --temp 1 --top-k 40 --seed 7 "Hello"); two=$("$MOED" run -n 20 --temp 1 --top-k 40 --seed 7 "Hello")
[ "$one" = "$two" ] || fail "same seed, different answers"
head -c 6000 /dev/zero | tr '\0' x > "$WORK/long"
code "$MOED" run - < "$WORK/long"
[ $CODE -eq 1 ] && grep -q 'context is 1024' "$WORK/err" || fail "too long a prompt: $CODE $(cat "$WORK/err")"

# Tokens round trip, and the logits of them have the right size.
text='def f(x): return "héllo"'
ids=$("$MOED" tokenize --json "$text" | tr -d '[] ')
[ "$("$MOED" detokenize "$ids")" = "$text" ] || fail "tokenize and detokenize differ"
"$MOED" logits --tokens "$ids" -o "$WORK/logits"
n=$(printf %s "$ids" | tr , '\n' | grep -c .)
vocab=$("$MOED" inspect --json "$MODEL" | sed -n 's/.*"vocab": *\([0-9]*\).*/\1/p')
[ "$(stat -c %s "$WORK/logits")" -eq $((n * vocab * 4)) ] || fail "logits file has the wrong size"
mkfifo "$WORK/pipe" # written, not replaced
cat "$WORK/pipe" > "$WORK/from-pipe" &
"$MOED" logits --tokens "$ids" -o "$WORK/pipe"
wait $!
[ -p "$WORK/pipe" ] && cmp -s "$WORK/logits" "$WORK/from-pipe" || fail "logits replaced a pipe, or wrote others into it"

# Ctrl-C cancels the answer and not the deployment.
"$MOED" run --ignore-end "Go on for ever" > "$WORK/c" &
c=$!
wait_until 10 test -s "$WORK/c" || fail "no answer to cancel"
kill -INT $c
set +e; wait $c; CODE=$?; set -e
[ $CODE -eq 130 ] || fail "Ctrl-C: exit code $CODE, expected 130"
idle() { [ "$(metric worker moed_worker_requests_running)" = 0 ]; }
wait_until 5 idle || fail "the cancelled request still runs"

# A reader that goes away ends its request.
"$MOED" run --ignore-end "Go on for ever" 2>/dev/null | head -c 20 >/dev/null || true
wait_until 5 idle || fail "a request without a reader still runs"

"$MOED" map > "$WORK/map"
[ "$(grep -c 'experts of' "$WORK/map")" -eq 8 ] && grep -q 'blk.7.attn_q.weight' "$WORK/map" || fail "map: $(cat "$WORK/map")"
"$MOED" ps --json | grep -q '"worker"' || fail "ps --json"
"$MOED" down >/dev/null
code "$MOED" run "x"
[ $CODE -eq 3 ] || fail "run without a deployment: exit code $CODE, expected 3"
code "$MOED" down
[ $CODE -eq 3 ] || fail "down without a deployment: exit code $CODE, expected 3"
left=$(find "$RUN" -type s 2>/dev/null | wc -l)
[ "$left" -eq 0 ] || fail "$left sockets are left behind"
say "ok"
