#!/bin/bash
# `moed profile` and the routing that a worker records: as a prompt and one token at a time, on every kind of device, beside
# other requests, with a worker that is killed; against the gate computed anew from what the trace holds.
MOED=$1 MODEL=$2 CHECK=$3 CLIENT=$4
shift 4 # golden models
. "$(dirname "$0")/../deployment.sh"

cat "$0" "$(dirname "$0")"/*.c | head -c 9000 > "$WORK/text"
profile() { "$MOED" profile "$MODEL" --text "$WORK/text" --context 200 --hidden 1/4 "$@"; }
# agree LEAST TRACE-CHECK'S ARGUMENTS: the share of choices that are the same; probabilities differ by a rounding step (1/32 octave).
agree() {
    least=$1; shift
    "$CHECK" "$@" > "$WORK/agree" 2>&1 || fail "$*: $(cat "$WORK/agree")"
    awk -v least="$least" '{ exit !($1 >= least && $2 > 0 && $3 <= 0.2) }' "$WORK/agree" ||
        fail "$*: same choices, how many, octaves between probabilities: $(cat "$WORK/agree"), expected at least $least"
}

# A deployment of its own, and what it leaves behind.
profile -o "$WORK/own" > "$WORK/out" 2> "$WORK/err" || fail "with a deployment of its own: $(cat "$WORK/err")"
grep -q 'is started' "$WORK/err" || fail "nothing said of the deployment that is started: $(cat "$WORK/err")"
[ ! -e "$RUN/worker.pid" ] || fail "its own deployment is left behind"
[ -z "$(ls "$WORK" | grep '^own\.tmp')" ] || fail "the unfinished file is left behind"
"$MOED" inspect --json "$WORK/own" > "$WORK/facts"
fact() { sed -n "s/.*\"$1\": *\([^,}]*\).*/\1/p" "${2:-$WORK/facts}"; }
tokens=$(fact tokens) sequences=$(fact sequences)
[ "$tokens" -gt 2000 ] && [ "$sequences" = $(( (tokens + 199) / 200 )) ] || fail "sequences of 200 tokens: $(cat "$WORK/facts")"
[ "$(fact hidden_tokens)" = $(( (tokens + 3) / 4 )) ] || fail "gate inputs of every 4th token: $(cat "$WORK/facts")"
grep -q "$sequences sequences, $tokens tokens" "$WORK/out" || fail "it says: $(cat "$WORK/out")"
# The recorded choices are those of the recorded gates; half precision explains the rest.
agree 0.99 gates "$WORK/own"

# The whole file to the byte: one token at a time, on a device that must copy experts, with less host memory than the model.
same() {
    start_deployment "$MODEL" "$@"
    profile -o "$WORK/other" > /dev/null || fail "$*"
    "$MOED" down > /dev/null 2>&1
    cmp -s "$WORK/own" "$WORK/other" || fail "another trace with: $*: $("$CHECK" same "$WORK/own" "$WORK/other" 2>&1)"
}
same --device emu:vram=4M,link=500M --policy dali
same --device emu:vram=4M,link=500M --ram 60%
"$MOED" up "$MODEL" --parallel 4 > /dev/null 2>&1
profile --stepwise -o "$WORK/stepwise" > /dev/null || fail "--stepwise"
cmp -s "$WORK/own" "$WORK/stepwise" || agree 0.99 same "$WORK/own" "$WORK/stepwise"

# Beside other requests, which get the same answer as alone.
answer() { "$MOED" run -n 60 --ignore-end --temp 0 "Once upon a time"; }
answer > "$WORK/alone"
profile --stepwise -o "$WORK/beside" > /dev/null &
profiling=$!
for i in 1 2 3; do answer > "$WORK/among"; cmp -s "$WORK/alone" "$WORK/among" || fail "another answer while a trace is recorded"; done
wait $profiling || fail "beside other requests"
cmp -s "$WORK/stepwise" "$WORK/beside" || fail "another trace beside other requests"
# Answers are recorded too, in a batch, with back-pressure.
"$CLIENT" || fail "routing of answers"

# The worker is killed on the way: it goes on, to the same trace.
busy() { [ "$(metric worker moed_worker_requests_running)" = 1 ]; }
profile_and_kill() {
    profile --stepwise -o "$WORK/killed" > "$WORK/out" 2> "$WORK/err" & profiling=$!
    was_busy=no
    ! while_running $profiling busy || { was_busy=yes; kill -9 "$(pid_of worker)"; }
    wait $profiling || fail "with a worker that was killed: $(cat "$WORK/err")"
    cmp -s "$WORK/stepwise" "$WORK/killed" || fail "another trace with a worker that was killed"
}
killed() { [ $was_busy = yes ]; }
again_until killed profile_and_kill || fail "no request of the profiling"

# Ctrl-C keeps the sequences that are whole. The text takes some seconds, so that it does not end before.
texts=()
for i in {1..10}; do texts+=("$WORK/text"); done
before=$(metric worker moed_worker_prompt_tokens_total)
ahead() { [ "$(metric worker moed_worker_prompt_tokens_total)" -gt $((before + 450)) ]; }
"$MOED" profile "$MODEL" --text "${texts[@]}" --context 200 --stepwise -o "$WORK/part" > "$WORK/out" 2> "$WORK/err" &
profiling=$!
wait_until 60 ahead || fail "no tokens are computed"
kill -INT $profiling
set +e; wait $profiling; code=$?; set -e
[ $code -eq 130 ] || fail "Ctrl-C: exit code $code, expected 130: $(cat "$WORK/err")"
grep -q 'those are kept' "$WORK/err" || fail "Ctrl-C says: $(cat "$WORK/err")"
"$MOED" inspect --json "$WORK/part" > "$WORK/part-facts"
[ "$(fact sequences "$WORK/part-facts")" -ge 1 ] && [ "$(fact sequences "$WORK/part-facts")" -lt $((10 * sequences)) ] ||
    fail "after Ctrl-C: $(cat "$WORK/part-facts")"
idle() { [ "$(metric worker moed_worker_requests_running)" = 0 ]; }
wait_until 10 idle || fail "the interrupted request still runs"

# So does what else ends it: a limit as a full disk, a deployment that is stopped.
kept() { # kept CODE WHY
    [ "$code" -eq "$1" ] && grep -q 'those are kept' "$WORK/err" || fail "$2: exit code $code, expected $1: $(cat "$WORK/err")"
    "$MOED" inspect --json "$WORK/part" > "$WORK/part-facts" || fail "$2: the trace does not open"
    [ "$(fact sequences "$WORK/part-facts")" -ge 1 ] && [ "$(fact sequences "$WORK/part-facts")" -lt "$sequences" ] ||
        fail "$2: $(cat "$WORK/part-facts")"
    [ -z "$(ls "$WORK" | grep '^part\.tmp')" ] || fail "$2: the unfinished file is left behind"
}
rm "$WORK/part"
set +e; (ulimit -f $(( $(stat -c %s "$WORK/own") / 2048 )); profile -o "$WORK/part" > "$WORK/out" 2> "$WORK/err"); code=$?; set -e
kept 1 "a full disk"
grep -q 'File too large' "$WORK/err" || fail "a full disk: $(cat "$WORK/err")"
[ "$(stat -c %a "$WORK/part")" = 600 ] || fail "others may read the trace"
rm "$WORK/part"
before=$(metric worker moed_worker_prompt_tokens_total)
"$MOED" profile "$MODEL" --text "$WORK/text" --context 200 --stepwise -o "$WORK/part" > "$WORK/out" 2> "$WORK/err" &
profiling=$!
wait_until 60 ahead || fail "no tokens are computed"
"$MOED" down > /dev/null 2>&1
set +e; wait $profiling; code=$?; set -e
kept 3 "moed down"

# What is asked for, and what is not.
"$MOED" up "$MODEL" > /dev/null 2>&1 || fail "up again"
printf 'One line.\nAnother line.\n\nA paragraph of its own.\n' > "$WORK/lines"
count() { # count SEQUENCES ARGUMENTS...
    want=$1; shift
    "$MOED" profile "$MODEL" -o "$WORK/small" "$@" > /dev/null || fail "$*"
    "$MOED" inspect --json "$WORK/small" > "$WORK/small-facts"
    [ "$(fact sequences "$WORK/small-facts")" = "$want" ] || fail "$*: $(cat "$WORK/small-facts"), expected $want sequences"
}
count 1 --text "$WORK/lines"
count 2 --text "$WORK/lines" --split blank-line
count 3 --text "$WORK/lines" --split line
count 6 --text "$WORK/lines" "$WORK/lines" --split line --prompt 1
count 6 --text "$WORK/lines" --text "$WORK/lines" --split line --prompt 1
count 1 --text "$WORK/lines" "$WORK/lines" --max-tokens 5 --no-gate --no-embeddings --hidden none
[ "$(fact tokens "$WORK/small-facts")" = 5 ] && [ "$(fact embeddings "$WORK/small-facts")" = 0 ] &&
    [ "$(fact gate_bytes "$WORK/small-facts")" = 0 ] && [ "$(fact hidden_tokens "$WORK/small-facts")" = 0 ] ||
    fail "5 tokens without parts: $(cat "$WORK/small-facts")"

# Routers of every kind: with biases, sigmoids, groups, leading layers without experts.
"$MOED" down > /dev/null 2>&1
for golden in "$@"; do
    "$MOED" profile "$golden" --text "$WORK/lines" --hidden all -o "$WORK/golden" > /dev/null 2> "$WORK/err" ||
        fail "$golden: $(cat "$WORK/err")"
    agree 0.99 gates "$WORK/golden"
done

# What users do wrong: one line, an exit code.
expect() {
    want=$1 pattern=$2; shift 2
    set +e; "$@" > "$WORK/out" 2> "$WORK/err" < /dev/null; got=$?; set -e
    [ $got -eq "$want" ] || fail "$*: exit code $got, expected $want: $(cat "$WORK/err")"
    grep -Eiq -e "$pattern" "$WORK/err" || fail "$*: expected /$pattern/, got: $(cat "$WORK/err")"
    [ "$(wc -l < "$WORK/err")" -eq 1 ] && [ ! -s "$WORK/out" ] || fail "$*: more than a line: $(cat "$WORK/err" "$WORK/out")"
}
"$MOED" up "$MODEL" > /dev/null 2>&1
: > "$WORK/empty"
printf 'moedtrac\2\0\0\0' > "$WORK/newer"
head -c 5000 "$WORK/own" > "$WORK/cut"
truncate -s 64 "$WORK/newer"
expect 2 '--text' "$MOED" profile "$MODEL" -o "$WORK/x"
expect 2 '-o TRACE' "$MOED" profile "$MODEL" --text "$WORK/text"
expect 2 'missing' "$MOED" profile
expect 2 'hidden' "$MOED" profile "$MODEL" --text "$WORK/text" -o "$WORK/x" --hidden 1/0
expect 2 'split' "$MOED" profile "$MODEL" --text "$WORK/text" -o "$WORK/x" --split word
expect 2 'context' "$MOED" profile "$MODEL" --text "$WORK/text" -o "$WORK/x" --context 1
expect 1 'No such file' "$MOED" profile "$MODEL" --text "$WORK/missing" -o "$WORK/x"
expect 1 'No such file' "$MOED" profile "$MODEL" --text "$WORK/text" "$WORK/missing" -o "$WORK/x"
expect 1 'no text' "$MOED" profile "$MODEL" --text "$WORK/empty" -o "$WORK/x"
expect 1 'no such file' "$MOED" profile "$WORK/missing.gguf" --text "$WORK/text" -o "$WORK/x"
expect 1 'x: cannot be created' "$MOED" profile "$MODEL" --text "$WORK/text" -o "$WORK/missing/x"
expect 1 'not a regular file' "$MOED" profile "$MODEL" --text "$WORK/text" -o /dev/full
expect 1 '--ctx' "$MOED" profile "$MODEL" --text "$WORK/text" -o "$WORK/x" --context 4096
expect 3 'not running' env -u MOED_RUN XDG_RUNTIME_DIR="$WORK" "$MOED" profile "$MODEL" --text "$WORK/text" -o "$WORK/x" --name nobody
expect 1 'version 2' "$MOED" inspect "$WORK/newer"
expect 1 'cut off' "$MOED" inspect "$WORK/cut"
[ -z "$(ls "$WORK" | grep '^x')" ] || fail "a file is left behind"
say "ok: $tokens tokens"
