#!/bin/bash
# Drafts of tokens (moed up --speculate) beside none: deployments with off, auto, 1, 3 and 7 answer the same requests in turns. For
# each kind of answer and each deployment: the median of tokens a second, the share of `off`, drafts computed and accepted for each
# step, and the median of the time of a step. All deployments must give the same tokens.
#   [SETTINGS="off auto"] speculation.sh MOED MODEL [ROUNDS [TOKENS [DEVICE]]]
# A model with random weights repeats nothing: its answers are restricted to K tokens (--bias), so that drafts exist and one in K or
# more is right.
MOED=$1 MODEL=$2 ROUNDS=${3:-9} N=${4:-300} DEVICE=${5:-host}
set -eu
. "$(dirname "$0")/figures.sh"
WORK=$(mktemp -d "${TMPDIR:-/tmp}/moed-speculation-XXXXXX")
read -ra settings <<< "${SETTINGS:-off auto 1 3 7}"
end() { for s in "${settings[@]}"; do on "$s" down >/dev/null 2>&1 || true; done; rm -rf "$WORK"; }
on() { local s=$1; shift; MOED_RUN=$WORK/run-$s "$MOED" "$@"; }
trap end EXIT

# few K: biases that leave K tokens.
few() { local i; for ((i = 0; i < $1; i++)); do printf -- '--bias %d=1000 ' $((1000 + i)); done; }
case $(basename "$MODEL") in
demo.gguf)
    names=(copying repeating editing "free text")
    prompts=("SELECT * FROM t WHERE a = 1; SELECT * FROM t WHERE a = 1; SELECT" "In the beginning God created"
        "NAME ls - list" "Once upon a time")
    options=("--temp 0" "--temp 0" "--temp 0.5 --seed 1" "--temp 1 --seed 1")
    ;;
*)
    names=("one token" "two tokens" "eight tokens" "free text")
    prompts=(a a a "Once upon a time")
    options=("--temp 0 $(few 1)" "--temp 1 --seed 1 $(few 2)" "--temp 1 --seed 1 $(few 8)" "--temp 1 --seed 1")
    ;;
esac

ask() { # ask SETTING KIND: appends TOKENS DECODE_S DRAFTED ACCEPTED to the kind's file of this setting
    local answer=$WORK/answer
    # shellcheck disable=SC2086 # words
    on "$1" run -n "$N" --ignore-end --json ${options[$2]} "${prompts[$2]}" > "$answer"
    echo "$(number generated_tokens "$answer") $(number decode_s "$answer") $(number drafted_tokens "$answer") $(number accepted_tokens "$answer")" >> "$WORK/$1-$2"
    sed 's/.*"tokens": *\(\[[^]]*\]\).*/\1/' "$answer" > "$WORK/tokens"
    [ -e "$WORK/tokens-$2" ] || cp "$WORK/tokens" "$WORK/tokens-$2"
    cmp -s "$WORK/tokens" "$WORK/tokens-$2" || { echo "--speculate $1: other tokens than --speculate off, ${names[$2]}" >&2; exit 1; }
}

for s in "${settings[@]}"; do on "$s" up "$MODEL" --device "$DEVICE" --speculate "$s" >/dev/null; done
for ((round = 0; round < ROUNDS; round++)); do
    for i in "${!names[@]}"; do
        for s in "${settings[@]}"; do ask "$s" "$i"; done
    done
done
echo "| answer | --speculate | tokens/s | of off | drafted a step | accepted a step | ms a step |"
echo "|---|---|---:|---:|---:|---:|---:|"
for i in "${!names[@]}"; do
    for s in "${settings[@]}"; do
        rate=$(awk '{ print ($1 - 1) / $2 }' "$WORK/$s-$i" | median)
        off=$(awk '{ print ($1 - 1) / $2 }' "$WORK/off-$i" | median)
        step=$(awk '{ print 1000 * $2 / ($1 - 1 - $4) }' "$WORK/$s-$i" | median)
        awk -v name="${names[$i]}" -v s="$s" -v rate="$rate" -v off="$off" -v step="$step" '
            { steps += $1 - 1 - $4; drafted += $3; accepted += $4 }
            END { printf "| %s | %s | %.1f | %.2f | %.2f | %.2f | %.3f |\n", name, s, rate, rate / off, drafted / steps, accepted / steps, step }' "$WORK/$s-$i"
    done
done
