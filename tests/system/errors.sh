#!/bin/bash
# For invalid use moed prints one clear line on standard error and returns an exit code for scripts.
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"

# expect CODE PATTERN COMMAND...: COMMAND returns CODE, prints one line that matches PATTERN on standard error, and nothing on
# standard output.
expect() {
    want=$1 pattern=$2; shift 2
    set +e; "$@" >"$WORK/out" 2>"$WORK/err" </dev/null; got=$?; set -e
    [ $got -eq "$want" ] || fail "$*: exit code $got, expected $want: $(cat "$WORK/err")"
    [ "$(grep -cvE '^moed: [a-z]+: (starting|loading)' "$WORK/err")" -le 2 ] || # progress, on a busy machine
        fail "$*: more than a line: $(cat "$WORK/err")"
    grep -Eiq "$pattern" "$WORK/err" || fail "$*: expected /$pattern/, got: $(cat "$WORK/err")"
    [ ! -s "$WORK/out" ] || fail "$*: something on standard output"
}

head -c 100000 "$MODEL" > "$WORK/cut.gguf"
{ printf 'NOPE'; tail -c +5 "$MODEL" | head -c 100000; } > "$WORK/magic.gguf"
: > "$WORK/empty.gguf"
{ printf 'GGUF\003\000\000\000'; printf '\377%.0s' $(seq 16); } > "$WORK/count.gguf"

{ head -c -1024 "$MODEL"; printf '\377%.0s' $(seq 512); tail -c 512 "$MODEL"; } > "$WORK/not-finite.gguf"

{ printf '\100\0\0\0\0\0\0\0{"__metadata__":{"format":"pt"}}'; head -c 1000 /dev/zero; } > "$WORK/original.safetensors"

LC_ALL=C sed 's/tokenizer.ggml.model/tokenizer.ggml.modeX/' "$MODEL" > "$WORK/tokens.gguf"

for verb in inspect up; do
    expect 1 "tokens.gguf.*tokenizer" "$MOED" $verb "$WORK/tokens.gguf"
    expect 1 'missing.gguf.*(No such file|not found|does not exist)' "$MOED" $verb "$WORK/missing.gguf"
    expect 1 'cut.gguf' "$MOED" $verb "$WORK/cut.gguf"
    expect 1 'magic.gguf.*GGUF' "$MOED" $verb "$WORK/magic.gguf"
    expect 1 'empty.gguf' "$MOED" $verb "$WORK/empty.gguf"
    expect 1 'count.gguf' "$MOED" $verb "$WORK/count.gguf"
    expect 1 'directory.*take a GGUF file' "$MOED" $verb "$WORK"
    expect 1 'safetensors.*take a GGUF file' "$MOED" $verb "$WORK/original.safetensors"
done
expect 1 "tensor '.*' has a weight that is not a finite number" "$MOED" up "$WORK/not-finite.gguf"
expect 3 'moed up' "$MOED" run "hello"
expect 3 'not running' "$MOED" tokenize "hello"
expect 3 'not running' "$MOED" logits --tokens 1 -o "$WORK/l"
expect 3 'not running' "$MOED" restart worker
# MOED_RUN names the deployment, so messages do not call it `default`, and hints name none.
for verb in "run x" chat tokenize\ x policy "top --once" down; do
    # shellcheck disable=SC2086 # several words
    expect 3 "the deployment in $RUN \(MOED_RUN\) is not running: start it with.* .?moed up MODEL.gguf.?$" "$MOED" $verb
done
expect 3 "deployment .?other.? is not running: start it with.* moed up MODEL.gguf --name other" "$MOED" run --name other x
expect 2 'no-such-option' "$MOED" run --no-such-option
expect 2 'did you mean --policy' "$MOED" up "$MODEL" --polciy moed
for pair in 'stop:moed down' 'start:moed up' 'list:moed models' 'ls:moed models' 'replay:moed-replay' 'server:moed serve' '-v:moed --version'; do
    expect 2 "did you mean '${pair#*:}'" "$MOED" "${pair%%:*}"
done
expect 2 'GGUF' "$MOED" pull mixtral
expect 2 'no Modelfiles' "$MOED" create mine
expect 2 'api-key-file' "$MOED" serve "$MODEL" --api-key secret
expect 2 'did you mean --repeat-penalty' "$MOED" run --repeat-penaltly 1 x
expect 2 'moed places experts, not layers' "$MOED" up "$MODEL" -ngl 99
expect 2 'batch N' "$MOED" up "$MODEL" --ubatch-size 512
expect 2 'share batches' "$MOED" up "$MODEL" --cont-batching
expect 2 'reasoning-field = ' "$MOED" serve "$MODEL" --reasoning-format none
expect 2 '0 leaves the number to the worker' "$MOED" serve "$MODEL" --parallel -1
set +e; "$MOED" serve -m "$MODEL" -c 512 --jinja --n-cpu-moe 3 --mlock --cache-reuse 256 --fit off >"$WORK/out" 2>"$WORK/err"; got=$?; set -e
[ $got -eq 2 ] && [ "$(grep -c '^moed: serve: there is no option --' "$WORK/err")" -eq 5 ] && ! grep -q 'argument' "$WORK/err" ||
    fail "not a line for each wrong option: $got $(cat "$WORK/err")"
[ "$("$MOED" serve --version)" = "$("$MOED" --version)" ] || fail "moed serve --version"
expect 2 'is a model file: .moed up .*, then .moed run PROMPT' "$MOED" run "$MODEL"
expect 2 'is a model file' "$MOED" run "$MODEL" Hello
expect 2 'is a model file: .*then .moed chat.$' "$MOED" chat "$MODEL"
expect 3 'moed up' "$MOED" run -- "$MODEL"
expect 2 'downloads no models' "$MOED" serve -hf someone/model
expect 2 'the device is the deployment.s' "$MOED" run -ngl 99 x
expect 3 'moed up' "$MOED" run --temperature 0 --n-predict 3 x
expect 2 '.' "$MOED" no-such-verb
expect 2 'temp' "$MOED" run --temp hot "x"
expect 2 '.' "$MOED" run
expect 1 'device' "$MOED" up "$MODEL" --device tpu:0
expect 2 'name' "$MOED" run --name '../../etc' x

# Help fits 80 columns, and every program says its version.
BUILD=$(dirname "$MOED")/..
programs=("$MOED" "$BUILD/client/moed-http" "$BUILD/deploy/moed-supervise" "$BUILD/deploy/moed-models" "$BUILD/memd/moed-memd" "$BUILD/worker/moed-worker" "$BUILD/cpuexec/moed-cpuexec")
for program in "$BUILD/bench/moed-replay" "$BUILD/bench/moed-bench"; do [ ! -x "$program" ] || programs+=("$program"); done
for program in "${programs[@]}"; do
    [ "$("$program" --version)" = "$(basename "$program") $("$MOED" --version | cut -d' ' -f2)" ] || fail "$program --version: $("$program" --version)"
    "$program" --help | awk 'length > 80 { print; bad = 1 } END { exit bad || NR < 5 }' || fail "$program --help"
done
for verb in $("$MOED" --help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
    "$MOED" "$verb" --help | awk 'length > 80 { print; bad = 1 } END { exit bad || NR < 3 }' || fail "$verb --help"
done

# Completion: every option of the help, and names with spaces as one reply.
complete_with() { # complete_with FUNCTION WORD...: prints the replies, one a line
    (cd "$WORK" && function=$1 && shift && . "$COMPLETION" && COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) && { "$function" || :; } && printf '%s\n' "${COMPREPLY[@]}")
}
COMPLETION=$(cd "$(dirname "$0")/../../deploy" && pwd)/moed.bash-completion
touch "$WORK/a model.gguf" "$WORK/a table.csv"
[ "$(complete_with _moed moed up 'a m')" = "a model.gguf" ] || fail "completion of a name with a space: $(complete_with _moed moed up 'a m')"
[ "$(complete_with _moed_replay moed-replay --csv 'a t')" = "a table.csv" ] && [ "$(complete_with _moed_replay moed-replay --policies lru,mixt)" = lru,mixtral-offloading ] ||
    fail "completion of moed-replay"
[ "$(complete_with _moed_bench moed-bench --mod)" = --model ] || fail "completion of moed-bench"
options_of() { "$@" --help | grep -oE '^ +(-[a-z], )?--?[a-z][a-z0-9-]*' | sed 's/.* //' | sort -u; }
for verb in $("$MOED" --help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
    [ "$verb" != mkmodel ] || continue
    missing=$(comm -23 <(options_of "$MOED" "$verb" | sed 's/^--no-/--/' | sort -u) <(complete_with _moed moed "$verb" - | sed 's/^--no-/--/' | sort -u))
    [ -z "$missing" ] || fail "the completion of moed $verb lacks: $missing"
done
# ... and the values that the help and moed-replay --list name.
values_of() { # values_of OPTION: what the help of moed up lists behind the colon
    "$MOED" up --help | awk -v option="  $1 " 'index($0, option) == 1 { on = 1; print; next } on && /^   / { print; next } { on = 0 }' |
        tr -d '\n' | sed 's/^[^:]*: *//' | tr -s ', ' '\n\n'
}
for option in --policy --assign --cache --predictor --budget --prefetch; do
    listed=$(values_of $option | sort -u)
    [ "$(printf '%s\n' "$listed" | wc -l)" -ge 3 ] || fail "no values of $option in the help: $listed"
    missing=$(comm -23 <(printf '%s\n' "$listed") <(complete_with _moed moed up $option '' | sort -u))
    [ -z "$missing" ] || fail "the completion of $option lacks: $missing"
done
[ "$(complete_with _moed moed reload 'a m')" = "a model.gguf" ] || fail "completion of moed reload"
for program in replay bench; do
    [ -x "$BUILD/bench/moed-$program" ] || continue
    missing=$(comm -23 <(options_of "$BUILD/bench/moed-$program") <(complete_with _moed_$program moed-$program - | sort -u))
    [ -z "$missing" ] || fail "the completion of moed-$program lacks: $missing"
done

# Too little address space, at any point of the start: a line and no crash.
[ -n "${MOED_SANITIZED:-}" ] || for kib in 30000 60000 100000 150000 200000 250000; do
    (ulimit -v $kib; expect 1 '.' timeout 60 "$MOED" up "$MODEL") || fail "up with ulimit -v $kib"
    ! grep -q 'killed by signal' "$WORK/err" || fail "up with ulimit -v $kib: $(cat "$WORK/err")"
done

"$MOED" up "$MODEL" --ctx 256 >"$WORK/out" 2>&1
grep -q "^the deployment in $RUN (MOED_RUN) answers after" "$WORK/out" || fail "moed up with MOED_RUN: $(cat "$WORK/out")"
expect 4 "the deployment in $RUN \(MOED_RUN\) runs already \(pid [0-9]+\): .moed down. stops it" "$MOED" up "$MODEL"
say "a full disk, and a pipe that nobody reads"
mkfifo "$WORK/pipe"
exec 4<>"$WORK/pipe" 5>"$WORK/pipe" 4>&-
for command in --help "help up" --version "run --help" ps "ps --json" "metrics" "metrics worker" policy "policy --json" logs map "map --json" cache "cache --json" \
    workers "top --once" "top --once --json" "inspect $MODEL" "inspect --json $MODEL" "inspect --tensors $MODEL" "tokenize x" "tokenize --json x" "detokenize 3" "run -n 2 x" "run -n 2 --json x"; do
    set +e
    # shellcheck disable=SC2086 # several words
    "$MOED" $command >/dev/full 2>"$WORK/err"; got=$?
    # shellcheck disable=SC2086
    (trap '' PIPE; exec "$MOED" $command >&5 2>"$WORK/err-pipe"); closed=$?
    set -e
    [ $got -eq 1 ] && grep -q 'moed: cannot write to standard output: No space left on device' "$WORK/err" || fail "moed $command on a full disk: $got $(cat "$WORK/err")"
    [ $closed -eq 141 ] && ! grep -q 'standard output' "$WORK/err-pipe" || fail "moed $command on a closed pipe: $closed $(cat "$WORK/err-pipe")"
done
exec 5>&-
expect 1 'vocabulary' "$MOED" logits --tokens 999999 -o "$WORK/l"
expect 1 '256' "$MOED" logits --tokens "$(seq -s, 1 300)" -o "$WORK/l"
expect 1 'empty' "$MOED" run ""
expect 1 'vocabulary' "$MOED" detokenize 999999
expect 2 'process' "$MOED" restart nobody
[ ! -e "$WORK/l" ] || fail "a failed command left its output file"
say "ok"
