#!/bin/bash
# memd is stopped (not killed) in the middle of an answer. The worker waits for one load that does not arrive, and not for each later
# one. The answer is right, and the worker computes on the CPU until memd copies again.
#   memd_stall.sh MOED MODEL
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"
# Tokens of an answer, which must take some seconds. A policy that loads every missing segment needs more time for each token.
FEW=100 MANY=1200
ask() { "$MOED" run -n $N --ignore-end --temp 0 "Once upon a time"; }
reclaimed() { metric worker moed_worker_loads_reclaimed_total; }
given_up() { grep -c "a load has not arrived" "$RUN/worker.log" || true; }
loaded() { "$MOED" metrics worker | awk '$1 == "moed_worker_segments_total{where=\"loaded\"}" { print $2 }'; }
tokens() { metric worker moed_worker_generated_tokens_total; }
grown() { [ "$(tokens)" -ge $(($1 + $2)) ]; }

start_deployment "$MODEL" --reproducible
for N in $FEW $MANY; do ask > "$WORK/want-$N"; done
"$MOED" down >/dev/null

for policy in ondemand mixtral-offloading moed; do
    N=$FEW
    [ $policy != moed ] || N=$MANY
    # a slow link, so that the answer takes seconds and the stop of memd hits the middle of it
    start_deployment "$MODEL" --reproducible --watchdog 0 --device emu:vram=30%,link=1G --policy $policy
    memd=$(pid_of memd) before=$(tokens)
    ask > "$WORK/got" 2> "$WORK/err" & answer=$!
    wait_until 20 grown "$before" 4 || fail "$policy: the answer does not begin"
    gave_up=$(given_up) # a load may have been late before, on a loaded machine
    stop_process "$memd"
    stopped_at=$(tokens)
    [ "$stopped_at" -lt $((before + N)) ] || { kill -CONT "$memd"; fail "$policy: the answer was over before memd was stopped"; }
    # memd stays stopped until the end. If the worker waited for every load, this would take half an hour.
    set +e; wait_until 60 grown "$before" $N; code=$?
    kill -CONT "$memd"; wait "$answer"; exit=$?; set -e
    [ $code -eq 0 ] || fail "$policy: after a minute $(($(tokens) - before)) of $N tokens, $(($(tokens) - stopped_at)) of them without memd"
    [ $exit -eq 0 ] || fail "$policy: $(cat "$WORK/err")"
    cmp -s "$WORK/want-$N" "$WORK/got" || fail "$policy: wrong tokens while memd is stopped"
    gave_up=$(($(given_up) - gave_up)) without=$((N - stopped_at))
    [ "$gave_up" -le 1 ] || fail "$policy: the worker waited for $gave_up loads"
    [ $policy != ondemand ] || [ "$gave_up" -eq 1 ] || fail "$policy: the worker needed no load while memd was stopped"
    # The worker requests loads again when memd makes progress. (`moed` loads only where that pays, so it may load nothing for long.)
    [ $policy != moed ] || { N=$FEW; "$MOED" policy --assign load-all >/dev/null || fail "policy --assign"; }
    before=$(loaded)
    more() { ask > "$WORK/got" && cmp -s "$WORK/want-$N" "$WORK/got" || return 1; [ "$(loaded)" -gt "$before" ]; }
    wait_until 20 more || fail "$policy: memd loads nothing after the stop"
    cmp -s "$WORK/want-$N" "$WORK/got" || fail "$policy: wrong tokens afterwards"
    wait_until 10 slots_add_up || fail "$policy: slots: $("$MOED" policy --json)"
    say "$policy: $gave_up load given up, $(reclaimed) segments reclaimed, $without tokens without memd"
    "$MOED" down >/dev/null
    rm -f "$RUN"/*.log
done
say ok
