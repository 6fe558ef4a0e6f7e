#!/bin/bash
# Several workers on one memd: requests spread over them and have the tokens that one worker gives; conversations are everybody's;
# workers come and go while serving; one that is killed again and again disturbs no answer and loses no page.
#   [ROUNDS=6] [DEVICE=host] [SEED=1] [MOED_TEST_SHORT=1] workers.sh MOED MODEL
# ROUNDS: kills; 1000 is a long run. MOED_TEST_SHORT: shorter answers and three kills, for a slow build.
MOED=$1 MODEL=$2 DEVICE=${DEVICE:-host}
. "$(dirname "$0")/../deployment.sh"
RANDOM=${SEED:-1}
STREAMS=4 N=96
[ -z "${MOED_TEST_SHORT:-}" ] || N=40 ROUNDS=${ROUNDS:-3}
ROUNDS=${ROUNDS:-6}
LONG=$(seq -s ' ' 1 150)

# ask I FILE: request I of four; prints what may not depend on the worker, and in FILE.json all.
ask() {
    local options
    case $1 in
    0) options=(--temp 0 "Once upon a time") ;;
    1) options=(--temp 0.9 --seed 5 "Once upon a time") ;;
    2) options=(--temp 0 "$LONG") ;;
    3) options=(--temp 1.2 --seed 6 --frequency-penalty 0.3 "int main(void) {") ;;
    esac
    "$MOED" run -n $N --ignore-end --json "${options[@]}" > "$2.json" 2> "$2.err" || return 1
    sed -n 's/.*"tokens": *\(\[[^]]*\]\).*/\1/p' "$2.json" > "$2"
    [ -s "$2" ]
}
field() { sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" "$2"; }

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
            echo "right, resumed $(field resumed "$WORK/got-$1.json")"
        fi
    done > "$WORK/stream-$1"
}
start_streams() { rm -f "$WORK/stop" "$WORK"/stream-*; pids=(); for i in $(seq 0 $((STREAMS - 1))); do stream "$i" & pids+=($!); done; }
# end_streams: counts $right and $resumed answers.
end_streams() {
    touch "$WORK/stop"
    for pid in "${pids[@]}"; do wait "$pid"; done
    cat "$WORK"/stream-* > "$WORK/answers"
    right=$(grep -c '^right' "$WORK/answers") || true
    resumed=$(grep -c '^right, resumed [1-9]' "$WORK/answers") || true
    ! grep -v '^right' "$WORK/answers" > "$WORK/wrong" || fail "$1: $(head -3 "$WORK/wrong")"
    [ "$right" -ge $STREAMS ] || fail "$1: only $right answers"
}
generated() { metric "$1" moed_worker_generated_tokens_total 2> /dev/null; }
has_worked() { local n; n=$(generated "$1") && [ "${n:-0}" -gt "${2:-0}" ]; }
rest() { sleep "$(awk -v ms=$((RANDOM % $1)) 'BEGIN { print ms / 1000 }')"; }
no_page_is_used() { "$MOED" cache --json | grep -q '"in_use": 0,'; }

# -- what one worker answers
up() { start_deployment "$MODEL" --ctx 1024 --device "$DEVICE" --kv-cache 64M "$@"; }
up
for i in $(seq 0 $((STREAMS - 1))); do ask "$i" "$WORK/want-$i" || fail "request $i: $(cat "$WORK/want-$i.err")"; done
"$MOED" down >/dev/null

# -- two workers share the requests
up --workers 2
[ "$("$MOED" ps | grep -c 'worker.* ready')" = 2 ] || fail "two workers: $("$MOED" ps)"
start_streams
wait_until 60 has_worked worker 50 && wait_until 60 has_worked worker-2 50 || fail "a worker has nothing to do: $("$MOED" workers)"
end_streams "two workers"
[ "$resumed" = 0 ] || fail "$resumed answers were interrupted though nothing died"
wait_until 10 no_page_is_used || fail "pages are used though no request runs: $("$MOED" cache --json)"
"$MOED" metrics | grep -q 'process="worker-2"' || fail "moed metrics lacks worker-2"
"$MOED" policy --json > /dev/null && "$MOED" map --json > /dev/null && "$MOED" top --once > /dev/null || fail "policy, map or top"

# -- what one worker computed another finds: all of the prompt but its last token is there, whichever worker is asked
"$MOED" workers 1 > /dev/null || fail "moed workers 1"
"$MOED" ps | grep -q worker-2 && fail "worker-2 is still there"
ask 2 "$WORK/got" && cmp -s "$WORK/got" "$WORK/want-2" || fail "the answer after worker-2 has gone"
[ "$(field cached_tokens "$WORK/got.json")" -ge $(($(field prompt_tokens "$WORK/got.json") - 1)) ] || fail "its conversation is gone: $(cat "$WORK/got.json")"

# -- workers come and go under load
start_streams
wait_until 60 has_worked worker || fail "no answer"
took=$("$MOED" workers 3) || fail "moed workers 3"
wait_until 60 has_worked worker-2 && wait_until 60 has_worked worker-3 || fail "a new worker has nothing to do: $("$MOED" workers)"
"$MOED" workers 2 > /dev/null && "$MOED" workers 1 > /dev/null || fail "moed workers 1"
end_streams "workers that come and go"
[ "$resumed" = 0 ] || fail "$resumed answers were interrupted by workers that left"
say "$took were there; $right answers while two came and went"
wait_until 10 no_page_is_used || fail "a worker that left keeps pages: $("$MOED" cache --json)"
for n in 0 17 x 1.5; do "$MOED" workers $n 2> "$WORK/err" && fail "moed workers $n"; grep -q '1 to 16' "$WORK/err" || fail "$(cat "$WORK/err")"; done

# -- one is killed again and again
"$MOED" workers 2 > /dev/null || fail "moed workers 2"
first=$(pid_of worker)
start_streams
for ((kills = 0; kills < ROUNDS;)); do
    before=$(generated worker-2 || true)
    rest 400
    [ $((kills % 3)) = 0 ] || wait_until 30 has_worked worker-2 "${before:-0}" || true
    pid=$(pid_of worker-2) && [ -n "$pid" ] && kill -9 "$pid" 2> /dev/null && kills=$((kills + 1)) || true
    kill -0 "$pid" 2> /dev/null || "$MOED" restart worker-2 > /dev/null 2>&1 || true
done
end_streams "$kills kills"
[ "$(pid_of worker)" = "$first" ] || fail "the other worker has died, too"
say "$DEVICE: $kills kills of one of two workers, $right answers, $resumed continued by the other, all right"
wait_until 20 no_page_is_used || fail "pages of dead workers are lost: $("$MOED" cache --json)"
