#!/bin/bash
# A memd that is stopped, and not dead, in the middle of an answer: a load that does not come is waited for once, not once each.
# The answer is right, and goes on on the CPU until memd moves again.
#   memd_stall.sh MOED MODEL
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"
# Tokens of an answer: it is to take a while. A policy that loads what is missing takes longer over each.
FEW=100 MANY=1200
ask() { "$MOED" run -n $N --ignore-end --temp 0 "Once upon a time"; }
taken_back() { metric worker moed_worker_loads_taken_back_total; }
given_up() { grep -c "a load has not come" "$RUN/worker.log" || true; }
loaded() { "$MOED" metrics worker | awk '$1 == "moed_worker_segments_total{where=\"loaded\"}" { print $2 }'; }
tokens() { metric worker moed_worker_generated_tokens_total; }
grown() { [ "$(tokens)" -ge $(($1 + $2)) ]; }

"$MOED" up "$MODEL" --reproducible >/dev/null 2>&1 || fail "up on the host"
for N in $FEW $MANY; do ask > "$WORK/want-$N"; done
"$MOED" down >/dev/null

for policy in ondemand mixtral-offloading moed; do
    N=$FEW
    [ $policy != moed ] || N=$MANY
    # slow, so that the answer takes seconds, of which memd is stopped in the middle of one
    "$MOED" up "$MODEL" --reproducible --device emu:vram=30%,link=1G --policy $policy >/dev/null 2>&1 || fail "up"
    memd=$(pid_of memd) before=$(tokens)
    ask > "$WORK/got" 2> "$WORK/err" & answer=$!
    wait_until 20 grown "$before" 4 || fail "$policy: the answer does not begin"
    gave_up=$(given_up) # before, by a machine that was busy for a second
    kill -STOP "$memd"
    stopped_at=$(tokens)
    [ "$stopped_at" -lt $((before + N)) ] || { kill -CONT "$memd"; fail "$policy: the answer was over before memd was stopped"; }
    # With memd stopped to the end. It would take half an hour if every load were waited for.
    set +e; wait_until 60 grown "$before" $N; code=$?
    kill -CONT "$memd"; wait "$answer"; exit=$?; set -e
    [ $code -eq 0 ] || fail "$policy: after a minute $(($(tokens) - before)) of $N tokens, $(($(tokens) - stopped_at)) of them without memd"
    [ $exit -eq 0 ] || fail "$policy: $(cat "$WORK/err")"
    cmp -s "$WORK/want-$N" "$WORK/got" || fail "$policy: wrong tokens while memd is stopped"
    gave_up=$(($(given_up) - gave_up))
    [ "$gave_up" -le 1 ] || fail "$policy: $gave_up loads were waited for"
    [ $policy != ondemand ] || [ "$gave_up" -eq 1 ] || fail "$policy: memd was not stopped when it was needed"
    # It loads again, once it has been seen to move.
    before=$(loaded)
    more() { ask > "$WORK/got" && cmp -s "$WORK/want-$N" "$WORK/got" || return 1; [ "$(loaded)" -gt "$before" ]; }
    wait_until 20 more || fail "$policy: nothing is loaded any more"
    cmp -s "$WORK/want-$N" "$WORK/got" || fail "$policy: wrong tokens afterwards"
    wait_until 10 slots_add_up || fail "$policy: slots: $("$MOED" policy --json)"
    say "$policy: $gave_up load waited for in vain, $(taken_back) segments taken back, $(($N - stopped_at)) tokens without memd"
    "$MOED" down >/dev/null
    rm -f "$RUN"/*.log
done
say ok
