#!/bin/bash
# `moed reload`: another model takes the first one's place while requests run; each answer is one model's from beginning to end.
# A file that cannot be loaded, a Ctrl-C or a process that is killed while it loads changes nothing. Kills of the next model's
# processes at random instants, before and after the switch, lose no answer. Where this user may mount, the deployment reads a file of the
# test as /proc/meminfo: then a model for which the memory does not suffice is refused, too.
#   [ROUNDS=4] [DEVICE=host] [SEED=1] reload.sh MOED MODEL
# ROUNDS: reloads with kills.
MOED=$1 MODEL=$2 ROUNDS=${ROUNDS:-4} DEVICE=${DEVICE:-host}
. "$(dirname "$0")/../deployment.sh"
RANDOM=${SEED:-1}
OTHER=$WORK/other.gguf
"$MOED" mkmodel --layers 3 -o "$OTHER" > /dev/null || fail "moed mkmodel"

answer() { "$MOED" run -n "${1:-48}" --ignore-end --temp 0 --json "Once upon a time" | sed -n 's/.*"tokens": *\(\[[^]]*\]\).*/\1/p'; }
# moed-http refuses requests (503) while a memd that was killed starts again.
chat() { curl -fsS -m 60 --retry 30 --retry-delay 1 "$URL/v1/completions" -d '{"prompt":"Once upon a time","max_tokens":48,"temperature":0}' -H 'Content-Type: application/json' |
    sed -n 's/.*"text":"\(\([^"\\]\|\\.\)*\)".*/\1/p'; }
# place: where the processes of the model that serves are.
place() { if [ -L "$RUN/serving" ]; then echo "$RUN/2"; else echo "$RUN"; fi; }
next_place() { if [ -L "$RUN/serving" ]; then echo "$RUN"; else echo "$RUN/2"; fi; }
serves() { "$MOED" ps --json | grep -q "\"model\": *\"[^\"]*$1"; }
# reload ARGUMENT...: must succeed.
reload() { "$MOED" reload "$@" > "$WORK/reload" 2>&1 || fail "reload $*: $(cat "$WORK/reload")"; }
# Seen as /proc/meminfo by commands behind ${apart[@]}.
cp /proc/meminfo "$WORK/meminfo"
apart=()
# shellcheck disable=SC2016 # for the inner shell
if unshare -m mount --bind "$WORK/meminfo" /proc/meminfo 2> /dev/null; then apart=(unshare -m sh -c 'mount --bind "$0" /proc/meminfo && exec "$@"' "$WORK/meminfo"); fi
# refused PATTERN ARGUMENT...: must fail with a line that matches, and change nothing.
refused() {
    local pattern=$1 code=0 before; before=$(place; cat "$(place)"/*.pid); shift
    "${as[@]}" "$MOED" reload "$@" > "$WORK/reload" 2>&1 || code=$?
    [ $code -ne 0 ] && grep -qE "$pattern" "$WORK/reload" || fail "reload $*: exit code $code, $(cat "$WORK/reload")"
    [ "$(place; cat "$(place)"/*.pid)" = "$before" ] || fail "reload $* has changed processes"
}
# is_one_of TEXT NAME: it is the answer of one of both models.
is_one_of() { [ "$1" = "$(cat "$WORK/$2-a")" ] || [ "$1" = "$(cat "$WORK/$2-b")" ]; }
# stream KIND: answers one after the other until `stop` is there; a line for each that is wrong, one at the end.
stream() {
    local n=0 text
    until [ -e "$WORK/stop" ]; do
        case $1 in tokens) text=$(answer 2>> "$WORK/errors") ;; long) text=$(answer 300 2>> "$WORK/errors") ;; http) text=$(chat 2>> "$WORK/errors") ;; esac
        is_one_of "$text" "$1" || echo "wrong: $1: '$text'"
        n=$((n + 1))
    done
    echo "right: $n"
}
start_streams() { rm -f "$WORK/stop"; streams=(); for kind in tokens long http; do stream $kind > "$WORK/stream-$kind" & streams+=($!); done; }
end_streams() {
    touch "$WORK/stop"
    for pid in "${streams[@]}"; do wait "$pid"; done
    ! grep -h wrong "$WORK"/stream-* > "$WORK/wrong" || fail "$1: $(head -3 "$WORK/wrong"; tail -5 "$WORK/errors")"
    say "$1: $(cat "$WORK"/stream-* | awk '{ n += $2 } END { print n }') answers, all right"
}

as=()
up() { "${apart[@]}" "$MOED" up "$1" --device "$DEVICE" --http 127.0.0.1:0 --workers 2 --kv-cache 64M > "$WORK/up" 2>&1 || fail "moed up $1: $(cat "$WORK/up")"; URL=http://127.0.0.1:$(cat "$RUN/http.port"); }
want() { answer > "$WORK/tokens-$1"; answer 300 > "$WORK/long-$1"; chat > "$WORK/http-$1"; [ -s "$WORK/tokens-$1" ] && [ -s "$WORK/long-$1" ] && [ -s "$WORK/http-$1" ]; }
command -v curl > /dev/null || skip "curl is not installed"
up "$OTHER"
want b || fail "the other model does not answer"
"$MOED" down > /dev/null
up "$MODEL"
want a || fail "the first model does not answer"

say "what cannot be loaded changes nothing"
head -c 5000 "$OTHER" > "$WORK/damaged.gguf"
refused "damaged.gguf" "$WORK/damaged.gguf"
refused "no such file" "$WORK/none.gguf"
refused "1 to|--ctx|ctx" "$OTHER" --ctx 99999999
refused "layers|policy|none of" "$OTHER" --policy nonsense
[ "$(answer)" = "$(cat "$WORK/tokens-a")" ] || fail "another answer after refused reloads"

if [ ${#apart[@]} -gt 0 ]; then
    say "memory for one model only: refused before anything starts, or by the next memd; the first model serves on"
    awk '$1 == "MemAvailable:" { $2 = 1000 } { print }' /proc/meminfo > "$WORK/meminfo"
    as=("${apart[@]}")
    refused "not enough memory for .*other.gguf" "$OTHER"
    grep -q "nothing was changed; --stop-first" "$WORK/reload" || fail "the refusal does not name --stop-first: $(cat "$WORK/reload")"
    as=()
    refused "memd: .*not enough memory" "$OTHER"
    grep -q "serves on; --stop-first" "$WORK/reload" || fail "the refusal does not name --stop-first: $(cat "$WORK/reload")"
    cat /proc/meminfo > "$WORK/meminfo"
    [ "$(answer)" = "$(cat "$WORK/tokens-a")" ] || fail "another answer after refused reloads"
else
    say "not tried, because this user may not mount: memory for one model only"
fi

say "another model, under load"
start_streams
reload "$OTHER"
grep -q "other.gguf serves" "$WORK/reload" || fail "reload says: $(cat "$WORK/reload")"
[ "$(answer)" = "$(cat "$WORK/tokens-b")" ] && [ "$(chat)" = "$(cat "$WORK/http-b")" ] && serves other.gguf || fail "not the other model's answer"
curl -sS -m 60 "$URL/v1/models" | grep -q '"id":"other"' || fail "moed-http has another name: $(curl -sS "$URL/v1/models")"
for file in memd.ctl memd.peers worker.ctl worker-2.ctl; do [ ! -e "$RUN/$file" ] || fail "$file of the first model is still there"; done
"$MOED" logs memd | grep -q ready || [ -s "$RUN/2/memd.log" ] || fail "no log of the next memd"
# seen_log: the page has the log of the memd that serves, by the time in its last line.
seen_log() { timeout 60 curl -sN "$URL/moed/events" | grep -m 1 '"name":"memd"' | grep -qF "$(tail -n 1 "$RUN/2/memd.log" | cut -c -24)"; }
wait_until 10 seen_log || fail "the page does not have the log of the next memd"
"$MOED" restart memd > /dev/null && [ "$(answer)" = "$(cat "$WORK/tokens-b")" ] || fail "restart memd has loaded another model"
"$MOED" workers 1 > /dev/null || fail "moed workers"
end_streams "a reload"

say "the first model stops before: an answer that runs ends, and a failure brings it back"
"$MOED" reload "$OTHER" --stop-first --policy nonsense > "$WORK/reload" 2>&1 && fail "reload with an unknown policy"
grep -q "serves again" "$WORK/reload" || fail "reload says: $(cat "$WORK/reload")"
is_back() { [ "$(answer)" = "$(cat "$WORK/tokens-b")" ]; }
wait_until 60 is_back || fail "the model did not come back"
answer 300 > "$WORK/long" & asking=$!
reload "$MODEL" --stop-first
wait $asking; cmp -s "$WORK/long" "$WORK/long-a" || cmp -s "$WORK/long" "$WORK/long-b" || fail "the answer that ran: $(cat "$WORK/long")"
[ "$(answer)" = "$(cat "$WORK/tokens-a")" ] && [ "$(chat)" = "$(cat "$WORK/http-a")" ] || fail "not the first model's answer"
"$MOED" workers 2 > /dev/null || fail "moed workers"

say "processes of the next model are killed at any instant"
start_streams
for ((round = 0; round < ROUNDS; round++)); do
    next=$(next_place)
    [ "$next" = "$RUN" ] && model=$MODEL || model=$OTHER
    before=$(place)
    "$MOED" reload "$model" > "$WORK/reload" 2>&1 & reloading=$!
    victim=$(shuf -n 1 -e memd memd worker worker-2 --random-source=<(yes $RANDOM))
    for ((k = RANDOM % 40; k > 0; k--)); do [ ! -s "$next/$victim.pid" ] || sleep 0.01; done
    pid=$(tr -dc 0-9 < "$next/$victim.pid" 2> /dev/null) || true
    [ -n "$pid" ] && tr '\0' ' ' < "/proc/$pid/cmdline" 2> /dev/null | grep -q "run $next " && kill -9 "$pid" 2> /dev/null || true
    if wait $reloading; then [ "$(place)" = "$next" ] || fail "reload ended with 0, and the first model serves"
    else [ "$(place)" = "$before" ] || fail "reload failed, and the next model serves: $(cat "$WORK/reload")"; failed=$((${failed:-0} + 1)); fi
done
end_streams "$ROUNDS reloads with kills, ${failed:-0} undone"

say "the supervisor dies during a reload"
"$MOED" reload "$MODEL" > /dev/null 2>&1 & reloading=$!
wait_until 60 test -s "$(next_place)/memd.pid" || true
kill -9 "$(pid_of supervise)"
wait $reloading && fail "reload ended with 0 though the supervisor died" || true
up "$MODEL"
[ ! -e "$RUN/serving" ] && [ "$(answer)" = "$(cat "$WORK/tokens-a")" ] || fail "another answer after the supervisor's death"
"$MOED" down > /dev/null && "$MOED" rm > /dev/null && [ ! -e "$RUN" ] || fail "moed rm: $(ls -R "$RUN")"
