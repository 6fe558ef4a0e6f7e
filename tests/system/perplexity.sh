#!/bin/bash
# `moed perplexity`: with a deployment that runs and with one of its own, interrupted, with a worker that is killed,
# and beside other requests. Its figures are compared with another implementation's in tests/golden/model.sh.
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"

# figure NAME FILE: one number of the JSON object.
figure() { sed -n "s/.*\"$1\": *\([^,}]*\).*/\1/p" "$2"; }
cat "$0" "$(dirname "$0")"/*.c | head -c 7000 > "$WORK/text"
measure() { "$MOED" perplexity "$MODEL" -f "$WORK/text" --context 256 --json "$@"; }

# A deployment of its own: started and stopped for it, here in $MOED_RUN.
measure --chunks 4 > "$WORK/own" 2> "$WORK/err" || fail "with a deployment of its own: $(cat "$WORK/err")"
grep -q 'is started' "$WORK/err" || fail "nothing said of the deployment that is started: $(cat "$WORK/err")"
[ ! -e "$RUN/worker.pid" ] || fail "its own deployment is left behind"
[ "$(figure tokens_scored "$WORK/own")" = 1020 ] || fail "4 windows of 256: $(cat "$WORK/own")"
[ "$(figure error_over "$WORK/own")" = '"tokens"' ] || fail "4 windows are too few: $(cat "$WORK/own")"
# Without MOED_RUN the directory goes too.
env -u MOED_RUN XDG_RUNTIME_DIR="$WORK" "$MOED" perplexity "$MODEL" -f "$WORK/text" --chunks 1 > /dev/null 2>&1 ||
    fail "in a directory of its own: exit code $?"
[ -z "$(ls -A "$WORK/moed" 2> /dev/null)" ] || fail "left behind: $(find "$WORK/moed")"

"$MOED" up "$MODEL" --parallel 2 > /dev/null 2>&1
busy() { [ "$(metric worker moed_worker_requests_running)" = 1 ]; }

# The same to the digit: the deployment makes no difference.
measure --chunks 4 > "$WORK/lent" 2> "$WORK/err"
! grep -v "perplexity: .*%" "$WORK/err" || fail "something on standard error: $(cat "$WORK/err")"
[ "$(figure nll "$WORK/own")" = "$(figure nll "$WORK/lent")" ] || fail "own: $(cat "$WORK/own") lent: $(cat "$WORK/lent")"
awk -v p="$(figure perplexity "$WORK/lent")" 'BEGIN { exit !(p > 1 && p < 100000) }' || fail "perplexity: $(cat "$WORK/lent")"

# The whole text, and the worker is killed on the way: it goes on, to the same figures.
measure > "$WORK/whole"
[ "$(figure error_over "$WORK/whole")" = '"windows"' ] || fail "the whole text has too few windows: $(cat "$WORK/whole")"
measure > "$WORK/killed" 2> "$WORK/err" &
measuring=$!
wait_until 20 busy || fail "no request of the measuring"
kill -9 "$(pid_of worker)"
wait $measuring || fail "with a worker that was killed: $(cat "$WORK/err")"
[ "$(figure nll "$WORK/killed")" = "$(figure nll "$WORK/whole")" ] || fail "with a worker that was killed: $(cat "$WORK/killed"), else $(cat "$WORK/whole")"

# Another request makes no difference to the figures.
answer() { "$MOED" run -n "$1" --ignore-end "Once upon a time"; }
answer 100 > /dev/null &
measure > "$WORK/beside"
wait $! || fail "an answer while a text is measured"
[ "$(figure nll "$WORK/beside")" = "$(figure nll "$WORK/whole")" ] || fail "another figure beside a request: $(cat "$WORK/beside")"

# A long one (every window moves on by 2 tokens) delays no answer until its end, and changes none.
answer 8 > "$WORK/alone"
"$MOED" perplexity "$MODEL" -f "$WORK/text" --context 256 --stride 2 --json > "$WORK/part" 2> "$WORK/err" &
measuring=$!
wait_until 20 busy || fail "no request of the measuring"
answer 8 > "$WORK/among" || fail "no answer while a text is measured"
kill -0 $measuring 2> /dev/null || fail "the answer waited for the end of the measuring"
cmp -s "$WORK/alone" "$WORK/among" || fail "another answer while a text is measured"

# Ctrl-C: what is known so far, and the request is gone.
before=$(metric worker moed_worker_prompt_tokens_total)
ahead() { [ "$(metric worker moed_worker_prompt_tokens_total)" -gt $((before + 1000)) ]; }
wait_until 60 ahead || fail "no windows are computed"
kill -INT $measuring
set +e; wait $measuring; code=$?; set -e
[ $code -eq 130 ] || fail "Ctrl-C: exit code $code, expected 130"
grep -q interrupted "$WORK/err" || fail "Ctrl-C says: $(cat "$WORK/err")"
[ "$(figure tokens_scored "$WORK/part")" -lt "$(figure tokens "$WORK/part")" ] || fail "Ctrl-C: $(cat "$WORK/part")"
idle() { [ "$(metric worker moed_worker_requests_running)" = 0 ]; }
wait_until 5 idle || fail "the interrupted request still runs"

# Ids instead of text: the same.
"$MOED" tokenize --json - < "$WORK/text" | tr -d '[]' > "$WORK/ids"
"$MOED" perplexity "$MODEL" --tokens -f - --context 256 --chunks 4 --json < "$WORK/ids" > "$WORK/of-ids"
[ "$(figure nll "$WORK/of-ids")" = "$(figure nll "$WORK/lent")" ] || fail "of ids: $(cat "$WORK/of-ids")"

# What users do wrong: one line, an exit code.
expect() {
    want=$1 pattern=$2; shift 2
    set +e; "$@" > "$WORK/out" 2> "$WORK/err" < /dev/null; got=$?; set -e
    [ $got -eq "$want" ] || fail "$*: exit code $got, expected $want: $(cat "$WORK/err")"
    grep -Eiq -e "$pattern" "$WORK/err" || fail "$*: expected /$pattern/, got: $(cat "$WORK/err")"
    [ "$(wc -l < "$WORK/err")" -eq 1 ] && [ ! -s "$WORK/out" ] || fail "$*: more than a line: $(cat "$WORK/err" "$WORK/out")"
}
: > "$WORK/empty"
"$MOED" mkmodel --layers 1 -o "$WORK/other.gguf" > /dev/null 2>&1
expect 2 '-f' "$MOED" perplexity "$MODEL"
expect 1 'No such file' "$MOED" perplexity "$MODEL" -f "$WORK/missing"
expect 1 'directory' "$MOED" perplexity "$MODEL" -f "$WORK"
expect 1 'nothing to score' "$MOED" perplexity "$MODEL" -f "$WORK/empty"
expect 1 'missing.gguf' "$MOED" perplexity "$WORK/missing.gguf" -f "$WORK/text"
expect 2 'stride' "$MOED" perplexity "$MODEL" -f "$WORK/text" --context 64 --stride 65
expect 2 'context' "$MOED" perplexity "$MODEL" -f "$WORK/text" --context 1
expect 1 '--ctx' "$MOED" perplexity "$MODEL" -f "$WORK/text" --context 4096
expect 1 'serves' "$MOED" perplexity "$WORK/other.gguf" -f "$WORK/text"
expect 3 'not running' env -u MOED_RUN XDG_RUNTIME_DIR="$WORK" "$MOED" perplexity "$MODEL" -f "$WORK/text" --name nobody
say "ok: $(figure tokens_scored "$WORK/whole") tokens, $(figure tokens_per_s "$WORK/whole") tokens/s"
