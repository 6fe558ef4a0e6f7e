#!/bin/bash
# `moed perplexity`: with a running deployment and with one of its own, interrupted, with a killed worker, and while other requests
# run. tests/golden/model.sh compares its figures with another implementation's.
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"

# figure NAME FILE: prints one number of the JSON object.
figure() { sed -n "s/.*\"$1\": *\([^,}]*\).*/\1/p" "$2"; }
cat "$0" "$(dirname "$0")"/*.c | head -c 7000 > "$WORK/text"
measure() { "$MOED" perplexity "$MODEL" -f "$WORK/text" --context 256 --json "$@"; }

# Without a running deployment `moed perplexity` starts its own, here in $MOED_RUN, and stops it afterwards.
measure --chunks 4 > "$WORK/own" 2> "$WORK/err" || fail "with a deployment of its own: $(cat "$WORK/err")"
grep -q 'is started on the CPU, .*moed up' "$WORK/err" || fail "no message about the deployment that it starts: $(cat "$WORK/err")"
[ ! -e "$RUN/worker.pid" ] || fail "its own deployment is left behind"
[ "$(figure tokens_scored "$WORK/own")" = 1020 ] || fail "4 windows of 256: $(cat "$WORK/own")"
[ "$(figure error_over "$WORK/own")" = '"tokens"' ] || fail "4 windows are too few: $(cat "$WORK/own")"
# Without MOED_RUN it also removes the directory.
env -u MOED_RUN XDG_RUNTIME_DIR="$WORK" "$MOED" perplexity "$MODEL" -f "$WORK/text" --chunks 1 > /dev/null 2>&1 ||
    fail "in a directory of its own: exit code $?"
[ -z "$(ls -A "$WORK/moed" 2> /dev/null)" ] || fail "left behind: $(find "$WORK/moed")"

"$MOED" up "$MODEL" --parallel 2 > /dev/null 2>&1
busy() { [ "$(metric worker moed_worker_requests_running)" = 1 ]; }

# A running deployment gives the same figures to the digit.
measure --chunks 4 > "$WORK/running" 2> "$WORK/err"
grep -Eq '^moed: uses .* \(kv f16, host\)$' "$WORK/err" || fail "it does not say which deployment it uses: $(cat "$WORK/err")"
! grep -Ev "perplexity: .*%|moed: uses " "$WORK/err" || fail "something on standard error: $(cat "$WORK/err")"
[ "$(figure nll "$WORK/own")" = "$(figure nll "$WORK/running")" ] || fail "own: $(cat "$WORK/own") running: $(cat "$WORK/running")"
awk -v p="$(figure perplexity "$WORK/running")" 'BEGIN { exit !(p > 1 && p < 100000) }' || fail "perplexity: $(cat "$WORK/running")"
[ "$(figure deployment "$WORK/own") $(figure kv_type "$WORK/running") $(figure reproducible "$WORK/running")" = 'null "f16" false' ] || fail "the report does not say what it used: $(cat "$WORK/running")"
[ "$(figure text_hash "$WORK/own")" = "$(figure text_hash "$WORK/running")" ] || fail "one text, two hashes"

# The whole text. If the worker dies on the way, moed continues with the next worker and gets the same figures.
measure > "$WORK/whole"
[ "$(figure error_over "$WORK/whole")" = '"windows"' ] || fail "the whole text has too few windows: $(cat "$WORK/whole")"
measure_and_kill() {
    measure > "$WORK/killed" 2> "$WORK/err" & measuring=$!
    was_busy=no
    ! while_running $measuring busy || { was_busy=yes; kill -9 "$(pid_of worker)"; }
    wait $measuring || fail "with a killed worker: $(cat "$WORK/err")"
    [ "$(figure nll "$WORK/killed")" = "$(figure nll "$WORK/whole")" ] || fail "with a killed worker: $(cat "$WORK/killed"), without: $(cat "$WORK/whole")"
}
killed() { [ $was_busy = yes ]; }
again_until killed measure_and_kill || fail "no request of the measuring"

# Another request makes no difference to the figures.
answer() { "$MOED" run -n "$1" --ignore-end --temp 0 "Once upon a time"; }
answer 100 > /dev/null &
measure > "$WORK/concurrent"
wait $! || fail "an answer while a text is measured"
[ "$(figure nll "$WORK/concurrent")" = "$(figure nll "$WORK/whole")" ] || fail "another figure while a request runs: $(cat "$WORK/concurrent")"

# During a long measurement (each window begins 2 tokens after the last one) other requests run at once, with the same tokens.
answer 8 > "$WORK/single"
"$MOED" perplexity "$MODEL" -f "$WORK/text" --context 256 --stride 2 --json > "$WORK/part" 2> "$WORK/err" &
measuring=$!
wait_until 20 busy || fail "no request of the measuring"
answer 8 > "$WORK/concurrent" || fail "no answer while a text is measured"
kill -0 $measuring 2> /dev/null || fail "the answer waited for the end of the measuring"
cmp -s "$WORK/single" "$WORK/concurrent" || fail "another answer while a text is measured"

# Ctrl-C: moed prints the figures so far and ends the request.
before=$(metric worker moed_worker_prompt_tokens_total)
computed_1000() { [ "$(metric worker moed_worker_prompt_tokens_total)" -gt $((before + 1000)) ]; }
wait_until 60 computed_1000 || fail "no windows are computed"
kill -INT $measuring
set +e; wait $measuring; code=$?; set -e
[ $code -eq 130 ] || fail "Ctrl-C: exit code $code, expected 130"
grep -q interrupted "$WORK/err" || fail "Ctrl-C prints: $(cat "$WORK/err")"
[ "$(figure tokens_scored "$WORK/part")" -lt "$(figure tokens "$WORK/part")" ] || fail "Ctrl-C: $(cat "$WORK/part")"
idle() { [ "$(metric worker moed_worker_requests_running)" = 0 ]; }
wait_until 10 idle || fail "the interrupted request still runs"

# Token ids instead of text give the same figures.
"$MOED" tokenize --json - < "$WORK/text" | tr -d '[]' > "$WORK/ids"
"$MOED" perplexity "$MODEL" --tokens -f - --context 256 --chunks 4 --json < "$WORK/ids" > "$WORK/of-ids"
[ "$(figure nll "$WORK/of-ids")" = "$(figure nll "$WORK/running")" ] || fail "of ids: $(cat "$WORK/of-ids")"

# --llama: the second half of each whole window, as sums of log-probabilities of the windows' ids give it.
"$MOED" perplexity "$MODEL" --tokens -f "$WORK/ids" --context 64 --chunks 2 --llama --json > "$WORK/halves"
[ "$(figure tokens_scored "$WORK/halves") $(figure scored "$WORK/halves")" = '62 "second-half"' ] || fail "$(cat "$WORK/halves")"
cut -d , -f 1-64 "$WORK/ids" > "$WORK/first"
"$MOED" perplexity "$MODEL" --tokens -f "$WORK/first" --context 64 --json > "$WORK/all"
cut -d , -f 1-33 "$WORK/ids" > "$WORK/half"
"$MOED" perplexity "$MODEL" --tokens -f "$WORK/half" --context 64 --json > "$WORK/before"
"$MOED" perplexity "$MODEL" --tokens -f "$WORK/ids" --context 64 --chunks 1 --llama --json > "$WORK/one"
awk -v all="$(figure nll "$WORK/all")" -v before="$(figure nll "$WORK/before")" -v one="$(figure nll "$WORK/one")" \
    'BEGIN { d = (all * 63 - before * 32) / 31 - one; exit !(d < 1e-4 && d > -1e-4) }' || fail "--llama: $(cat "$WORK/one")"

# A model against itself; and a baseline of other tokens. test_comparison has the figures.
measure --chunks 2 --save "$WORK/base" > /dev/null
measure --chunks 2 --against "$WORK/base" > "$WORK/same"
[ "$(figure nll_difference "$WORK/same") $(figure kl_max "$WORK/same") $(figure same_top "$WORK/same") $(figure perplexity_ratio "$WORK/same")" = "0 0 1 1" ] ||
    fail "against itself: $(cat "$WORK/same")"
! "$MOED" perplexity "$MODEL" --tokens -f "$WORK/ids" --context 256 --chunks 1 --against "$WORK/base" > /dev/null 2> "$WORK/err" || fail "other windows are taken"
grep -q 'the same text and options are needed' "$WORK/err" || fail "$(cat "$WORK/err")"

# Invalid use: one line and an exit code.
expect() {
    want=$1 pattern=$2; shift 2
    set +e; "$@" > "$WORK/out" 2> "$WORK/err" < /dev/null; got=$?; set -e
    [ $got -eq "$want" ] || fail "$*: exit code $got, expected $want: $(cat "$WORK/err")"
    grep -Eiq -e "$pattern" "$WORK/err" || fail "$*: expected /$pattern/, got: $(cat "$WORK/err")"
    sed -i '/^moed: uses /d' "$WORK/err"
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
expect 2 'combined' "$MOED" perplexity "$MODEL" -f "$WORK/text" --save a --against b
expect 1 'not a file of moed perplexity --save' "$MOED" perplexity "$MODEL" -f "$WORK/text" --against "$MODEL"
expect 2 'context' "$MOED" perplexity "$MODEL" -f "$WORK/text" --context 1
expect 2 'stride' "$MOED" perplexity "$MODEL" -f "$WORK/text" --context 64 --llama --stride 32
expect 1 '--ctx' "$MOED" perplexity "$MODEL" -f "$WORK/text" --context 4096
expect 1 'serves' "$MOED" perplexity "$WORK/other.gguf" -f "$WORK/text"
expect 3 'not running' env -u MOED_RUN XDG_RUNTIME_DIR="$WORK" "$MOED" perplexity "$MODEL" -f "$WORK/text" --name nobody

# Without MOED_RUN and a name: those with too short a context are passed over; of several the user chooses.
elsewhere() { env -u MOED_RUN XDG_RUNTIME_DIR="$WORK" "$MOED" "$@"; }
elsewhere up "$MODEL" --name short --ctx 64 > /dev/null 2>&1 || fail "no deployment short"
elsewhere up "$MODEL" --name long --ctx 512 --kv-type q8_0 > /dev/null 2>&1 || fail "no deployment long"
elsewhere perplexity "$MODEL" -f "$WORK/text" --context 128 --chunks 1 --json > "$WORK/out" 2> "$WORK/err" || fail "$(cat "$WORK/err")"
grep -q 'uses deployment long (kv q8_0, host)' "$WORK/err" || fail "$(cat "$WORK/err")"
[ "$(figure deployment "$WORK/out") $(figure kv_type "$WORK/out")" = '"long" "q8_0"' ] || fail "$(cat "$WORK/out")"
expect 2 'several deployments serve .*: (long, short|short, long); choose one with --name' elsewhere perplexity "$MODEL" -f "$WORK/text" --context 64
expect 1 'context of deployment short is 64' elsewhere perplexity "$MODEL" -f "$WORK/text" --context 128 --name short
elsewhere down --name short > /dev/null && elsewhere down --name long > /dev/null || fail "no end"
say "ok: $(figure tokens_scored "$WORK/whole") tokens, $(figure tokens_per_s "$WORK/whole") tokens/s"
