#!/bin/bash
# A deployment as a user drives it: up, two answers at once from one loaded model, cancel, pipes, invalid use, down.
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"

code() { set +e; "$@" >"$WORK/out" 2>"$WORK/err"; CODE=$?; set -e; }

# The context ends the answers that are interrupted below: a fast machine needs seconds for this one.
"$MOED" up "$MODEL" --ctx 16384 > "$WORK/up" 2>/dev/null
grep -q 'at most 16384 tokens, prompt and answer together; `--ctx N`' "$WORK/up" || fail "up does not say the context: $(cat "$WORK/up")"
grep -q 'talk with it: `moed chat`; one answer: `moed run --chat "PROMPT"`' "$WORK/up" || fail "up does not say how to ask: $(cat "$WORK/up")"
code "$MOED" up "$MODEL"
[ $CODE -eq 4 ] || fail "a second up: exit code $CODE, expected 4"

# Two frontends at once; both answer, one model is loaded.
"$MOED" run -n 40 --ignore-end --temp 0 "The quick brown fox" > "$WORK/a" &
a=$!
"$MOED" run -n 40 --ignore-end --temp 0 "Once upon a time there was" > "$WORK/b" &
b=$!
wait $a || fail "first answer"
wait $b || fail "second answer"
[ -s "$WORK/a" ] && [ -s "$WORK/b" ] || fail "an answer is empty"
[ "$(metric memd moed_memd_leases)" = 1 ] || fail "expected one lease of the pool, the worker's"
experts=$(metric worker 'moed_worker_experts_total{where="worker"}')
bytes=$(metric worker moed_worker_expert_weight_bytes_total)
[ "${experts%.*}" -gt 0 ] || fail "the worker computed no expert"
awk -v n="$experts" -v bytes="$bytes" 'BEGIN { exit !(bytes > 1000 * n) }' || fail "$experts experts, $bytes bytes of them"
"$MOED" metrics > "$WORK/metrics" 2> "$WORK/err" && [ ! -s "$WORK/err" ] || fail "metrics of all: $(cat "$WORK/err")"
# One text: each family once, its samples together and after its head, each with its process.
awk '/^# HELP / { if (seen[$3]++) { print "second HELP of " $3; exit 1 } family = $3 }
    !/^#/ { name = $1; sub(/[{].*/, "", name); bare = name; sub(/_(bucket|sum|count)$/, "", bare)
            if (name != family && bare != family) { print name " is not below its HELP"; exit 1 }
            if ($0 !~ /[{]process="(memd|worker)"/) { print "no process: " $0; exit 1 } n++ }
    END { exit n < 50 }' "$WORK/metrics" || fail "metrics of all: $(cat "$WORK/metrics")"
if command -v promtool >/dev/null; then
    promtool check metrics < "$WORK/metrics" > "$WORK/out" 2>&1 || fail "promtool: $(cat "$WORK/out")"
fi
code "$MOED" metrics cpuexec
[ $CODE -eq 1 ] && grep -q "has no cpuexec" "$WORK/err" || fail "metrics of a cpuexec that does not run: $CODE $(cat "$WORK/err")"
! "$MOED" ps | grep -q cpuexec || fail "ps shows a cpuexec"

# Standard input to the byte, JSON, stop strings, limits.
printf 'Hello\0world' | "$MOED" run -n 4 --temp 0 --json - > "$WORK/json"
grep -q '"generated_tokens": 4' "$WORK/json" || fail "JSON: $(cat "$WORK/json")"
text=$("$MOED" run -n 30 --ignore-end --temp 0 "Tell me")
stop=${text:2:3}
short=$("$MOED" run -n 30 --ignore-end --temp 0 --stop "$stop" "Tell me")
case $text in "$short"*) ;; *) fail "stop string: '$short' does not begin '$text'" ;; esac
[ ${#short} -lt ${#text} ] || fail "stop string did not stop"
case $short in *"$stop"*) fail "the stop string was sent" ;; esac

# The worker may send several tokens in one message. No token is lost, and there are at most as many messages as tokens.
sent() { metric worker moed_worker_token_events_total; }
tokens=$(metric worker moed_worker_generated_tokens_total) events=$(sent)
"$MOED" run -n 200 --ignore-end --temp 0 --json "Once upon a time" > "$WORK/json"
grep -q '"generated_tokens": 200' "$WORK/json" || fail "JSON: $(cat "$WORK/json")"
[ $(($(metric worker moed_worker_generated_tokens_total) - tokens)) -eq 200 ] || fail "the metric does not count 200 tokens"
messages=$(($(sent) - events))
[ "$messages" -ge 2 ] && [ "$messages" -le 200 ] || fail "200 tokens in $messages messages"

# The speed of a prompt is that of the tokens that were computed; the prefix cache has the others at the second time.
long="$(seq -s ' ' 1 90)"
for turn in 1 2; do
    "$MOED" run -n 2 --ignore-end --temp 0 --json "$long" > "$WORK/json"
    awk 'match($0, /"prompt_tokens": [0-9]+/) { prompt = substr($0, RSTART + 17, RLENGTH - 17) }
         match($0, /"cached_tokens": [0-9]+/) { cached = substr($0, RSTART + 17, RLENGTH - 17) }
         match($0, /"prefill_s": [0-9.]+/) { s = substr($0, RSTART + 13, RLENGTH - 13) }
         match($0, /"prompt_tokens_per_s": [0-9.]+/) { rate = substr($0, RSTART + 23, RLENGTH - 23) }
         END { n = rate * s; exit !(cached + 0 >= 64 * (turn - 1) && n > 0.9 * (prompt - cached) && n < 1.1 * (prompt - cached)) }' \
        turn=$turn "$WORK/json" || fail "the prompt's speed: $(cat "$WORK/json")"
done
"$MOED" run -n 2 --ignore-end --temp 0 --stats "$long" 2>&1 > "$WORK/out" | grep -q 'prompt [0-9]* tokens, [1-9][0-9]* cached, ' || fail "--stats does not say what was cached"

# The same seed gives the same answer.
one=$("$MOED" run -n 20 --temp 1 --top-k 40 --seed 7 "Hello"); two=$("$MOED" run -n 20 --temp 1 --top-k 40 --seed 7 "Hello")
[ "$one" = "$two" ] || fail "same seed, different answers"
# Without one, answers differ, and each says its seed, which gives it again.
"$MOED" run -n 20 --ignore-end --temp 3 --min-p 0 --json "Hello" > "$WORK/first"; "$MOED" run -n 20 --ignore-end --temp 3 --min-p 0 --json "Hello" > "$WORK/second"
tokens_of() { sed -n 's/.*"tokens": *\(\[[^]]*\]\).*/\1/p' "$1"; }
[ "$(tokens_of "$WORK/first")" != "$(tokens_of "$WORK/second")" ] || fail "two random answers are the same"
seed=$(sed -n 's/.*"seed": \([0-9]*\).*/\1/p' "$WORK/first")
"$MOED" run -n 20 --ignore-end --temp 3 --min-p 0 --seed "$seed" --json "Hello" > "$WORK/again"
[ "$(tokens_of "$WORK/first")" = "$(tokens_of "$WORK/again")" ] || fail "the answer's seed gives another answer"

# Log-probabilities, progress, what ended the answer.
"$MOED" run -n 200 --ignore-end --temp 0 --logprobs 2 --progress --json "Once upon a time" > "$WORK/json"
[ "$(grep -o '"logprob":' "$WORK/json" | wc -l)" = 200 ] && grep -q '"progress": \[\[' "$WORK/json" || fail "JSON: $(cat "$WORK/json")"
first=$(tokens_of "$WORK/json" | tr -d '[ ' | cut -d, -f1)
grep -q "\"token\": $first, \"logprob\": [-0-9.e]*, \"top\": \[\[$first, " "$WORK/json" || fail "the first token is not the most probable: $(cat "$WORK/json")"
"$MOED" run -n 20 --ignore-end --temp 0 --stop-token "$first" --json "Once upon a time" > "$WORK/json"
grep -q "\"finish_reason\": \"end\", \"end_token\": $first," "$WORK/json" || fail "stop token: $(cat "$WORK/json")"
"$MOED" run -n 20 --ignore-end --temp 0 --stop nowhere --stop "$stop" --json "Tell me" > "$WORK/json"
grep -q '"finish_reason": "stop", "stop_index": 1,' "$WORK/json" || fail "stop string: $(cat "$WORK/json")"
"$MOED" run -n 5 --ignore-end --bias 7=1000000 --json "Hello" > "$WORK/json"
[ "$(tokens_of "$WORK/json")" = "[7, 7, 7, 7, 7]" ] || fail "bias: $(cat "$WORK/json")"
"$MOED" run -n 20 --ignore-end --temp 0.01 --seed 7 --order '' --json "Hello" > "$WORK/json"
"$MOED" run -n 20 --ignore-end --temp 1 --seed 7 --order t --json "Hello" > "$WORK/again"
[ "$(tokens_of "$WORK/json")" = "$(tokens_of "$WORK/again")" ] || fail "an empty order is no plain draw: $(cat "$WORK/json" "$WORK/again")"
code "$MOED" run --order kq x
[ $CODE -eq 1 ] && grep -q "letter 'q'" "$WORK/err" || fail "an unknown sampler: $CODE $(cat "$WORK/err")"

# The context is a limit said before any work.
head -c 100000 /dev/zero | tr '\0' x > "$WORK/long"
code "$MOED" run - < "$WORK/long"
[ $CODE -eq 1 ] && grep -q 'context length is 16384' "$WORK/err" || fail "a prompt longer than the context: $CODE $(cat "$WORK/err")"

# Tokens round trip, and the logits of them have the right size.
text='def f(x): return "héllo"'
ids=$("$MOED" tokenize --json "$text" | tr -d '[] ')
[ "$("$MOED" detokenize "$ids")" = "$text" ] || fail "tokenize and detokenize differ"
"$MOED" logits --tokens "$ids" -o "$WORK/logits"
n=$(printf %s "$ids" | tr , '\n' | grep -c .)
vocab=$("$MOED" inspect --json "$MODEL" | sed -n 's/.*"vocab": *\([0-9]*\).*/\1/p')
[ "$(stat -c %s "$WORK/logits")" -eq $((n * vocab * 4)) ] || fail "logits file has the wrong size"
echo mine > "$WORK/logits.tmp" # a file of the user
(ulimit -f 1; code "$MOED" logits --tokens "$ids" -o "$WORK/logits"; [ $CODE -eq 1 ]) && grep -q 'File too large' "$WORK/err" ||
    fail "logits on a full disk: $(cat "$WORK/err")"
[ "$(stat -c %s "$WORK/logits")" -eq $((n * vocab * 4)) ] && [ "$(cat "$WORK/logits.tmp")" = mine ] && [ -z "$(ls "$WORK" | grep '^logits\.tmp\.')" ] ||
    fail "after a failure of logits: $(ls -l "$WORK")"
code "$MOED" logits --tokens "$ids" -o "$WORK"
[ $CODE -eq 1 ] && grep -q 'not a regular file' "$WORK/err" || fail "logits to a folder: $(cat "$WORK/err")"
mkfifo "$WORK/pipe" # written, not replaced
cat "$WORK/pipe" > "$WORK/from-pipe" &
"$MOED" logits --tokens "$ids" -o "$WORK/pipe"
wait $!
[ -p "$WORK/pipe" ] && cmp -s "$WORK/logits" "$WORK/from-pipe" || fail "logits replaced a pipe, or wrote other logits into it"

# Structured output, at any temperature; the patterns are those of the schema, in its order and without white space but single blanks.
schema='{"type": "object", "properties": {"name": {"type": "string", "pattern": "^[A-Z][a-z]{1,9}$"}, "n": {"type": "integer", "minimum": 1,
  "maximum": 50}, "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3}}, "required": ["name", "n", "tags"], "additionalProperties": false}'
printf %s "$schema" > "$WORK/schema.json"
pattern='^\{"name": ?"[A-Z][a-z]{1,9}", ?"n": ?([1-9]|[1-4][0-9]|50), ?"tags": ?\[("[ab]"(, ?"[ab]"){0,2})?\]\}$'
for temperature in 0 0.8 1.5 1.5 1.5 1.5; do
    "$MOED" run --temp $temperature --min-p 0 --json-schema "$WORK/schema.json" "Tell me" > "$WORK/out"
    grep -Eq "$pattern" "$WORK/out" && [ "$(wc -l < "$WORK/out")" -eq 0 ] || fail "--json-schema at temperature $temperature: $(cat "$WORK/out")"
done
for i in 1 2 3; do
    case $("$MOED" run --temp 1.5 --choice yes --choice "no, never" "Is it?") in yes | "no, never") ;; *) fail "--choice: another answer" ;; esac
done
"$MOED" run --temp 1 --regex '[A-Z]{3}-\d{4}' "x" | grep -Eq '^[A-Z]{3}-[0-9]{4}$' || fail "--regex"
printf 'root ::= "k=" %%json {"type": "boolean"} ";"\n' > "$WORK/rules.gbnf"
case $("$MOED" run --grammar "$WORK/rules.gbnf" "x") in "k=true;" | "k=false;") ;; *) fail "--grammar" ;; esac
"$MOED" run --temp 1 --seed 3 --json-object -n 200 "x" | grep -q '^{' || fail "--json-object"
[ "$(metric worker moed_worker_grammar_masks_total)" != 0 ] || fail "the grammars refused nothing"
code "$MOED" run --json-schema '{"properties": {"a": {"not": {}}}}' "x"
[ $CODE -eq 1 ] && [ "$(wc -l < "$WORK/err")" -eq 1 ] && grep -q '#/properties/a/not' "$WORK/err" || fail "a schema that is not supported: $CODE $(cat "$WORK/err")"
for wrong in "--json-schema $WORK/none" "--regex a --choice b" "--regex a --ignore-end"; do
    code "$MOED" run $wrong "x"
    [ $CODE -eq 2 ] && [ "$(wc -l < "$WORK/err")" -eq 1 ] && [ ! -s "$WORK/out" ] || fail "run $wrong: $CODE $(cat "$WORK/err")"
done

# An answer under a grammar survives its worker.
digits() { "$MOED" run --temp 1 --seed 5 --regex '[0-9]{700}' "x"; }
digits > "$WORK/whole"
digits > "$WORK/cut" &
c=$!
wait_until 10 test -s "$WORK/cut" || fail "no answer to cut"
kill -9 "$(pid_of worker)"
wait $c || fail "the answer did not survive its worker"
cmp -s "$WORK/whole" "$WORK/cut" && [ "$(wc -c < "$WORK/cut")" -eq 700 ] || fail "another answer after the worker's death: $(cat "$WORK/cut")"

# Ctrl-C cancels the answer and not the deployment.
"$MOED" run --ignore-end "Go on for ever" > "$WORK/c" &
c=$!
wait_until 10 test -s "$WORK/c" || fail "no answer to cancel"
kill -INT $c
set +e; wait $c; CODE=$?; set -e
[ $CODE -eq 130 ] || fail "Ctrl-C: exit code $CODE, expected 130"
idle() { [ "$(metric worker moed_worker_requests_running)" = 0 ]; }
wait_until 10 idle || fail "the cancelled request still runs"

# Also where the worker is silent.
("$MOED" run --ignore-end "Go on for ever" > "$WORK/silent" & echo $! > "$WORK/pid"; set +e; wait $!; echo $? > "$WORK/code") &
wait_until 10 test -s "$WORK/silent" || fail "no answer to cancel"
worker=$(pid_of worker)
stop_process "$worker"
kill -INT "$(cat "$WORK/pid")"
set +e; wait_until 60 test -s "$WORK/code"; CODE=$?; set -e
kill -CONT "$worker"
[ $CODE -eq 0 ] || { kill -9 "$(cat "$WORK/pid")"; fail "Ctrl-C does not end moed run while the worker is silent"; }
[ "$(cat "$WORK/code")" -eq 130 ] || fail "Ctrl-C at a silent worker: exit code $(cat "$WORK/code"), expected 130"
wait_until 10 idle || fail "the cancelled request still runs"

# A reader that goes away ends its request.
"$MOED" run --ignore-end "Go on for ever" 2>/dev/null | head -c 20 >/dev/null || true
wait_until 10 idle || fail "a request without a reader still runs"

"$MOED" map > "$WORK/map"
[ "$(grep -c 'experts of' "$WORK/map")" -eq 8 ] && grep -q 'blk.7.attn_q.weight' "$WORK/map" || fail "map: $(cat "$WORK/map")"
"$MOED" ps --json | grep -q '"worker"' || fail "ps --json"

# A worker that is stopped while it drains (ThreadSanitizer looks at it): the request keeps it from ending before.
worker=$(pid_of worker)
"$MOED" run --ignore-end "Go on for ever" > "$WORK/drained" 2>/dev/null &
c=$!
wait_until 10 test -s "$WORK/drained" || fail "no answer to drain"
kill -USR1 "$worker"
wait_until 10 grep -q 'draining: no new work' "$RUN/worker.log" || fail "the worker does not drain"
kill -TERM "$worker"
wait_until 10 grep -q 'worker has .* exit status 0' "$RUN/supervise.log" || fail "a worker that drains does not stop with 0"
kill -INT $c 2>/dev/null || true
wait $c || true

"$MOED" down >/dev/null
code "$MOED" run "x"
[ $CODE -eq 3 ] || fail "run without a deployment: exit code $CODE, expected 3"
code "$MOED" down
[ $CODE -eq 3 ] || fail "down without a deployment: exit code $CODE, expected 3"
left=$(find "$RUN" -type s 2>/dev/null | wc -l)
[ "$left" -eq 0 ] || fail "$left sockets are left behind"
say "ok"
