#!/bin/bash
# What users do wrong gets one clear line on standard error and an exit code for scripts.
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"

# expect CODE PATTERN COMMAND...: exit code, one line on standard error that matches, nothing on standard output.
expect() {
    want=$1 pattern=$2; shift 2
    set +e; "$@" >"$WORK/out" 2>"$WORK/err" </dev/null; got=$?; set -e
    [ $got -eq "$want" ] || fail "$*: exit code $got, expected $want: $(cat "$WORK/err")"
    [ "$(wc -l < "$WORK/err")" -le 2 ] || fail "$*: more than a line: $(cat "$WORK/err")"
    grep -Eiq "$pattern" "$WORK/err" || fail "$*: expected /$pattern/, got: $(cat "$WORK/err")"
    [ ! -s "$WORK/out" ] || fail "$*: something on standard output"
}

head -c 100000 "$MODEL" > "$WORK/cut.gguf"
{ printf 'NOPE'; tail -c +5 "$MODEL" | head -c 100000; } > "$WORK/magic.gguf"
: > "$WORK/empty.gguf"
{ printf 'GGUF\003\000\000\000'; printf '\377%.0s' $(seq 16); } > "$WORK/count.gguf"

for verb in inspect up; do
    expect 1 'missing.gguf.*(No such file|not found|does not exist)' "$MOED" $verb "$WORK/missing.gguf"
    expect 1 'cut.gguf' "$MOED" $verb "$WORK/cut.gguf"
    expect 1 'magic.gguf.*GGUF' "$MOED" $verb "$WORK/magic.gguf"
    expect 1 'empty.gguf' "$MOED" $verb "$WORK/empty.gguf"
    expect 1 'count.gguf' "$MOED" $verb "$WORK/count.gguf"
    expect 1 'directory' "$MOED" $verb "$WORK"
done
expect 3 'moed up' "$MOED" run "hello"
expect 3 'not running' "$MOED" tokenize "hello"
expect 3 'not running' "$MOED" logits --tokens 1 -o "$WORK/l"
expect 3 'not running' "$MOED" restart worker
expect 2 'no-such-option' "$MOED" run --no-such-option
expect 2 '.' "$MOED" no-such-verb
expect 2 'temp' "$MOED" run --temp hot "x"
expect 2 '.' "$MOED" run
expect 1 'device' "$MOED" up "$MODEL" --device tpu:0
expect 2 'name' "$MOED" run --name '../../etc' x

"$MOED" up "$MODEL" --ctx 256 >/dev/null 2>&1
expect 1 'vocabulary' "$MOED" logits --tokens 999999 -o "$WORK/l"
expect 1 '256' "$MOED" logits --tokens "$(seq -s, 1 300)" -o "$WORK/l"
expect 1 'empty' "$MOED" run ""
expect 1 'vocabulary' "$MOED" detokenize 999999
expect 2 'process' "$MOED" restart nobody
[ ! -e "$WORK/l" ] || fail "a failed command left its output file"
say "ok"
