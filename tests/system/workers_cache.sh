#!/bin/bash
# Two workers share one device's expert cache: under every policy both have the tokens of the host, no slot is lost and none waits for
# ever, also when one is killed in the middle, and when the slots are few.
#   workers_cache.sh MOED MODEL [DEVICE]
MOED=$1 MODEL=$2 DEVICE=${4:-emu:vram=25%,link=400M}
. "$(dirname "$0")/../deployment.sh"
prompts=("Once upon a time" "$(seq -s ' ' 1 60)" "int main(void) {" "0 1 2 3")
N=12 ASK_SECONDS=120

start_deployment "$MODEL" --ctx 512
ask_all $N want
"$MOED" down > /dev/null

start_deployment "$MODEL" --ctx 512 --device "$DEVICE" --workers 2
# both FILE: four requests at once; both workers take part.
both() {
    ask_all $N "$1"
    cmp -s "$WORK/want" "$WORK/$1" || fail "$2: other tokens than on the host"
    slots_add_up || fail "$2: slots are lost: $("$MOED" policy --json)"
}
segments() { "$MOED" metrics "$1" | awk '/^moed_worker_segments_total/ { n += $2 } END { printf "%d", n }'; }
policies=$("$MOED" policy | sed -n '/^policies/,/^$/s/^  \([a-z]*\) .*/\1/p')
[ "$(wc -w <<< "$policies")" -ge 12 ] || fail "no list of policies: $policies"
for policy in $policies; do
    "$MOED" policy "$policy" > /dev/null || fail "moed policy $policy"
    both got "$policy"
done
[ "$(segments worker)" -gt 0 ] && [ "$(segments worker-2)" -gt 0 ] || fail "a worker computed nothing: $("$MOED" workers)"
[ "$(grep -c 'calibrated in' "$RUN"/worker*.log | awk -F: '{ n += $2 } END { print n }')" = 1 ] || fail "both workers calibrated"

# one dies while both load: its pins and loads go, the other goes on
for policy in moed dali ondemand; do
    "$MOED" policy $policy > /dev/null || fail "moed policy $policy"
    ask_all $N got & asking=$!
    sleep 0.3
    kill -9 "$(pid_of worker-2)"
    wait $asking || fail "$policy: an answer is lost"
    cmp -s "$WORK/want" "$WORK/got" || fail "$policy, a kill: other tokens"
    wait_until 20 slots_add_up || fail "$policy, a kill: slots are lost: $("$MOED" policy --json)"
    "$MOED" restart worker-2 > /dev/null || fail "restart worker-2"
done
# few slots: loads of both go through them in turn
"$MOED" resize --vram 2% > /dev/null || fail "resize"
for policy in moed ondemand; do
    "$MOED" policy $policy > /dev/null && both got "$policy with few slots"
done
