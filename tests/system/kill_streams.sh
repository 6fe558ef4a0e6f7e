#!/bin/bash
# kill -9 of the worker and of cpuexec at random instants under eight streams: greedy and sampled, with stop strings, grammars,
# penalties and a long prompt. Every answer has to be whole, and have the text, tokens and end that it has without kills.
#   [ROUNDS=8] [DEVICES="host emu:vram=30%,link=400M"] [SEED=1] kill_streams.sh MOED MODEL
# ROUNDS: kills on each device; 1000 is a long run.
MOED=$1 MODEL=$2 ROUNDS=${ROUNDS:-8} DEVICES=${DEVICES:-host emu:vram=30%,link=400M}
. "$(dirname "$0")/../deployment.sh"
RANDOM=${SEED:-1}
STREAMS=8 N=${TOKENS:-160}
LONG=$(seq -s ' ' 1 150)

# ask I: request I of eight; prints what may not depend on kills.
ask() {
    local options
    case $1 in
    0) options=(--temp 0 --ignore-end "Once upon a time") ;;
    1) options=(--temp 0.9 --seed 5 --ignore-end "Once upon a time") ;;
    2) options=(--temp 0 --ignore-end --stop "$STOP" "There was a time") ;;
    3) options=(--temp 1 --seed 8 --min-p 0.02 --stop "never to be seen" --stop " the" --min-tokens 90 "The weather in") ;;
    4) options=(--temp 1 --seed 3 --regex '([a-z]{1,9} ){20,40}end' "A list of words:") ;;
    5) options=(--temp 1 --seed 4 --json-schema "$SCHEMA" "A record:") ;;
    6) options=(--temp 0 --ignore-end "$LONG") ;;
    7) options=(--temp 1.2 --seed 6 --mirostat 2 --frequency-penalty 0.3 --dry-multiplier 0.5 --ignore-end "int main(void) {") ;;
    esac
    "$MOED" run -n $N --json "${options[@]}" > "$2.json" 2> "$2.err" || return 1
    sed -E 's/, "seed".*("generated_tokens": [0-9]+).*/, \1/' "$2.json" > "$2"
    grep -q '"generated_tokens"' "$2"
}
STOP="never to be seen"
SCHEMA='{"type": "object", "properties": {"name": {"type": "string", "maxLength": 40}, "ages": {"type": "array", "items": {"type": "integer"},
    "minItems": 3, "maxItems": 9}, "kind": {"enum": ["a", "b"]}}, "required": ["name", "ages", "kind"], "additionalProperties": false}'

# stream I: answers one after the other, until `stop` is there; a line for each.
stream() {
    local k kind
    for ((k = 0;; k++)); do
        [ ! -e "$WORK/stop" ] || break
        kind=$((($1 + k) % STREAMS))
        if ! ask $kind "$WORK/got-$1"; then
            echo "request $kind failed: $(cat "$WORK/got-$1.err")"
        elif ! cmp -s "$WORK/got-$1" "$WORK/want-$kind"; then
            echo "request $kind: $(cat "$WORK/got-$1") instead of $(cat "$WORK/want-$kind")"
        else
            echo right
        fi
    done > "$WORK/stream-$1"
}

generated() { metric worker moed_worker_generated_tokens_total; }
has_worked() { local n; n=$(generated) && [ "${n:-0}" -ge $((4 * STREAMS)) ]; }
rest() { sleep "$(awk -v ms=$((RANDOM % $1)) 'BEGIN { print ms / 1000 }')"; }

# kill_one: kills, and has the supervisor start the dead again without its growing pause, but for one time in sixteen.
kill_one() {
    local victims=worker victim pid
    case $((RANDOM % 4)) in 0) victims=cpuexec ;; 1) victims="worker cpuexec" ;; esac
    # Most kills follow a few tokens of each stream: a request that has no token of four workers in a row is given up.
    if [ $((kills % 3)) != 0 ]; then wait_until 60 has_worked || fail "the streams do not go on"; fi
    rest 250
    for victim in $victims; do
        pid=$(pid_of $victim) && [ -n "$pid" ] && kill -9 "$pid" 2>/dev/null && kills=$((kills + 1)) || continue
        deaths[$victim]=$((${deaths[$victim]:-0} + 1))
    done
    [ $((RANDOM % 16)) != 0 ] || return 0
    for victim in $victims; do
        kill -0 "$(pid_of $victim)" 2>/dev/null || "$MOED" restart $victim >/dev/null 2>&1 || true
    done
}

up() { start_deployment "$MODEL" --ctx 1024 --parallel $STREAMS "$@"; }
up
for i in $(seq 0 $((STREAMS - 1))); do ask "$i" "$WORK/want-$i" || fail "request $i: $(cat "$WORK/want-$i.err")"; done
# A stop string of several tokens, from the middle of the answer.
STOP=$(sed 's/"tokens".*//' "$WORK/want-2" | grep -oE '[a-z ]{12}' | sed -n 22p)
[ ${#STOP} = 12 ] || fail "no stop string in $(cat "$WORK/want-2")"
ask 2 "$WORK/want-2" && grep -q '"stop"' "$WORK/want-2" || fail "the stop string: $(cat "$WORK/want-2")"
grep -q '"finish_reason": "end"' "$WORK/want-4" || fail "the regular expression: $(cat "$WORK/want-4")"
"$MOED" down >/dev/null

for device in $DEVICES; do
    case $device in host) up --cpuexec ;; *) up --device "$device" ;; esac
    declare -A deaths=()
    kills=0 pids=()
    rm -f "$WORK/stop"
    for i in $(seq 0 $((STREAMS - 1))); do stream "$i" & pids+=($!); done
    while [ $kills -lt "$ROUNDS" ]; do kill_one; done
    touch "$WORK/stop"
    for pid in "${pids[@]}"; do wait "$pid"; done
    right=$(cat "$WORK"/stream-* | grep -c '^right$') || true
    cat "$WORK"/stream-* | grep -v '^right$' > "$WORK/wrong" && fail "$device, $kills kills: $(head -3 "$WORK/wrong")"
    [ "$right" -ge $STREAMS ] || fail "$device: only $right answers"
    say "$device: $kills kills (worker ${deaths[worker]:-0}, cpuexec ${deaths[cpuexec]:-0}), $right answers, all whole and right"
    "$MOED" down >/dev/null
done
