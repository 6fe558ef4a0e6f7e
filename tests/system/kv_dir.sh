#!/bin/bash
# --kv-dir: conversations survive a restart of the whole deployment, also with another number of threads, and evictions. Answers have the
# same tokens and log-probabilities with pages from the file and without. A damaged, cut, foreign or old file harms nothing.
#   kv_dir.sh MOED MODEL OTHER-MODEL [MODULE]
# MODULE: the simulated CUDA device.
MOED=$1 MODEL=$2 OTHER=$3 MODULE=${4:-}
. "$(dirname "$0")/../deployment.sh"
DIR=$WORK/kv
long=$(seq -s ' ' 1 200)
prompts=("$long" "$long and then something else" "Once upon a time there was a" "$(seq -s ' ' 300 400)")

up() { start_deployment "$MODEL" --ctx 2048 "$@"; }
down() { "$MOED" down >/dev/null || fail "down"; }
# ask FILE: all prompts, one after the other; tokens and log-probabilities to FILE, cached tokens to FILE.cached.
ask() {
    local i
    : > "$1"; : > "$1.cached"
    for i in "${!prompts[@]}"; do
        "$MOED" run -n 20 --ignore-end --temp 0.8 --seed 3 --json --logprobs 3 "${prompts[$i]}" > "$WORK/one" || fail "request $i"
        sed 's/, "prompt_tokens".*//' "$WORK/one" >> "$1"
        sed 's/.*"cached_tokens": *\([0-9]*\).*/\1/' "$WORK/one" >> "$1.cached"
    done
}
same() { cmp -s "$WORK/want" "$1" || fail "$2: other answers"; }
cached() { sed -n "$2p" "$1.cached"; } # cached FILE LINE
# The file is used, and the answers are right: expect_cached WHAT. A request reads pages as long as that takes less time than computing
# them (worker/kv/prefix_store.c), so on a busy disk the first one may have only some of them: whole pages.
expect_cached() {
    local n all
    ask "$WORK/got"
    same "$WORK/got" "$1"
    n=$(cached "$WORK/got" 1) all=$(cached "$WORK/again" 1)
    [ "$n" = "$all" ] || { [ "$n" -gt 0 ] && [ "$n" -lt "$all" ] && [ $((n % 64)) = 0 ]; } && [ "$(cached "$WORK/got" 3)" -gt 0 ] ||
        fail "$1: cached tokens $(xargs < "$WORK/got.cached"), with warm memory $(xargs < "$WORK/again.cached")"
}
# It is not used for the first prompt, and the answers are right.
expect_nothing() {
    ask "$WORK/got"
    same "$WORK/got" "$1"
    [ "$(cached "$WORK/got" 1)" = 0 ] || fail "$1: $(cached "$WORK/got" 1) tokens were cached"
}
log() { grep -q "$1" "$RUN/memd.log" || fail "memd does not say: $1"; }

up
ask "$WORK/want"
ask "$WORK/again"
down
up --kv-dir "$DIR"
expect_nothing "a new file"
down
file=$(echo "$DIR"/*.kv)
[ -s "$file" ] || fail "no file in $DIR"
cp "$file" "$WORK/good"

up --kv-dir "$DIR"
expect_cached "a second deployment"
memd=$(pid_of memd) worker=$(pid_of worker)
kill -9 "$memd" # what memd wrote before stays, and the lock goes with it
others_answer() { [ "$(pid_of memd)" != "$memd" ] && [ "$(pid_of worker)" != "$worker" ] && "$MOED" run -n 1 x; }
wait_until 30 others_answer || fail "no answer after memd's death"
expect_cached "after memd's death"
MOED_RUN=$WORK/second start_deployment "$MODEL" --kv-dir "$DIR"
grep -q "another deployment uses it" "$WORK/second/memd.log" || fail "two deployments have one file"
MOED_RUN=$WORK/second "$MOED" down >/dev/null
down
say "ok: a restart"

# Host memory for a few pages only: the others come from the file.
up --ctx 1024 --kv-cache 6M --kv-dir "$DIR"
for round in 1 2; do ask "$WORK/got"; same "$WORK/got" "a small pool, round $round"; done
[ "$(cached "$WORK/got" 1)" -gt 0 ] || fail "a small pool: nothing is cached"
down
say "ok: a small pool"

# Damage: bytes in the middle of pages and records, a file that was cut, a header.
size=$(stat -c %s "$WORK/good")
cp "$WORK/good" "$file"
for at in 5000 $((size / 5)) $((size / 3)); do
    printf 'damaged damaged damaged' | dd of="$file" bs=1 seek="$at" conv=notrunc 2>/dev/null
done
truncate -s $((size / 2)) "$file"
up --kv-dir "$DIR"
ask "$WORK/got"
same "$WORK/got" "half a file, with damage"
truncate -s 0 "$file" # while it is in use
ask "$WORK/got"
same "$WORK/got" "a file cut while it is used"
down
printf 'this is something else' > "$file"
up --kv-dir "$DIR"
log "is damaged or no file of conversations"
expect_nothing "a foreign file"
grep -q "something else" "$file.bad" || fail "the foreign file is gone"
down
cp "$WORK/good" "$file"
up --kv-dir "$DIR" --kv-type q8_0
log "of another version of moed, or of other options"
"$MOED" run -n 2 --temp 0 x >/dev/null || fail "an answer with other options"
down
say "ok: damage"

# Another model has a file of its own. `moed cache --clear` clears the file.
cp "$WORK/good" "$file"
start_deployment "$OTHER" --kv-dir "$DIR"
"$MOED" run -n 2 --temp 0 --tokens "1 2 3" >/dev/null || fail "an answer of the other model"
down
[ "$(ls "$DIR"/*.kv | wc -l)" = 2 ] || fail "the other model has no file of its own"
up --kv-dir "$DIR"
expect_cached "beside another model's file"
"$MOED" cache --clear >/dev/null
expect_nothing "a cleared cache"
"$MOED" cache --clear >/dev/null
down
up --kv-dir "$DIR"
expect_nothing "a cleared file"
down

# A longrope model has other rotation factors in a long context, so its pages are of no use in a short one.
"$MOED" mkmodel --arch phimoe --layers 2 --ctx 4096 -o "$WORK/phi.gguf" || fail "mkmodel" # of 1024 tokens originally
far() { # far CONTEXT FILE [OPTION...]
    MODEL=$WORK/phi.gguf up --ctx "$1" "${@:3}" # the last --ctx counts
    "$MOED" run -n 20 --ignore-end --temp 0 --tokens "$(seq -s ' ' 1 600)" > "$2" || fail "an answer with --ctx $1"
    down
}
far 4096 "$WORK/far-want"
far 1000 "$WORK/near" --kv-dir "$DIR/far"
far 4096 "$WORK/far" --kv-dir "$DIR/far"
cmp -s "$WORK/far" "$WORK/far-want" || fail "a longer context: another answer with pages of a short one"
cmp -s "$WORK/near" "$WORK/far" && fail "both contexts have the same answer: this compares nothing"
say "ok: another context"

# Products of BF16 weights round by the CPU's instructions, if it has some, but not by the number of threads.
"$MOED" mkmodel --layers 2 --type BF16 -o "$WORK/bf16.gguf" || fail "mkmodel"
by() { # by THREADS FILE [OPTION...]
    MODEL=$WORK/bf16.gguf up --threads "$1" "${@:3}"
    "$MOED" run -n 20 --ignore-end --temp 0 --seed 3 --json --logprobs 3 --tokens "$(seq -s ' ' 1 300)" > "$WORK/one" || fail "an answer of $1 threads"
    sed 's/, "prompt_tokens".*//' "$WORK/one" > "$2"
    down
}
by 2 "$WORK/by-want"
by 1 "$WORK/by-one" --kv-dir "$DIR/by"
by 2 "$WORK/by-two" --kv-dir "$DIR/by"
grep -q '"cached_tokens": *[1-9]' "$WORK/one" || fail "another number of threads: nothing came from the file"
cmp -s "$WORK/by-one" "$WORK/by-want" && cmp -s "$WORK/by-two" "$WORK/by-want" || fail "another number of threads: another answer"
say "ok: another number of threads"

# On a CUDA device: pages go to host memory, to the file, and back.
if [ -n "$MODULE" ]; then
    export MOED_CUDA_MODULE=$MODULE
    for turn in 1 2; do
        up --ctx 512 --reproducible --device cuda:0,vram=30% --kv-dir "$DIR/cuda"
        "$MOED" run -n 30 --ignore-end --temp 0.8 --seed 3 --json "$(seq -s ' ' 1 50)" > "$WORK/cuda-$turn" || fail "an answer on the device"
        down
    done
    tokens() { sed 's/.*"tokens": *\(\[[^]]*\]\).*/\1/' "$WORK/cuda-$1"; }
    [ "$(tokens 1)" = "$(tokens 2)" ] || fail "a device: $(tokens 2) instead of $(tokens 1)"
    grep -q '"cached_tokens": [1-9]' "$WORK/cuda-2" || fail "a device: nothing came from the file"
    say "ok: a CUDA device"
fi

# Limits and refusals.
up --kv-dir "$DIR" --kv-dir-size 700K
ask "$WORK/got"
same "$WORK/got" "a small file"
down
[ "$(stat -c %s "$file")" -le 700000 ] || fail "the file has $(stat -c %s "$file") bytes"
! "$MOED" up "$MODEL" --kv-dir /proc/none >/dev/null 2>"$WORK/up" || fail "up takes a directory that cannot be"
grep -q -- "--kv-dir /proc/none cannot be used" "$WORK/up" || fail "the message: $(cat "$WORK/up")"
! "$MOED" up "$MODEL" --kv-cache 200% >/dev/null 2>"$WORK/up" || fail "up takes twice the memory that is free"
grep -q -- "--kv-cache '200%': expected bytes" "$WORK/up" || fail "$(cat "$WORK/up")"
! "$MOED" up "$MODEL" --kv-dir "$DIR" --kv-dir-size much >/dev/null 2>"$WORK/up" || fail "up takes a size that is none"
grep -q -- "--kv-dir-size 'much': expected bytes" "$WORK/up" || fail "the message: $(cat "$WORK/up")"
say "ok"
