#!/bin/bash
# The expert cache under deaths: worker, cpuexec or both killed at random instants while answers are under way, under each
# policy. No wrong token, no slot lost.
#   [ROUNDS=2] [POLICIES="moed ..."] [TOKENS=80] [DEVICE=emu:vram=30%,link=400M] expert_cache_kill.sh MOED MODEL
# rounds a policy, and which; tokens of an answer; the device
MOED=$1 MODEL=$2 ROUNDS=${ROUNDS:-2} DEVICE=${DEVICE:-emu:vram=30%,link=400M}
read -ra POLICIES <<< "${POLICIES:-moed ondemand static lru lfu mixtral-offloading eam threshold score qstar layerwise dali prescope moepic promoe finemoe}"
. "$(dirname "$0")/../deployment.sh"
RANDOM=7
N=${TOKENS:-80}
prompts=("Once upon a time" "int main(void) {" "0 1 2 3")
SEGMENTS="--segment-bytes 65536"
"$MOED" up "$MODEL" --reproducible $SEGMENTS >/dev/null 2>&1
for i in "${!prompts[@]}"; do
    "$MOED" run -n $N --ignore-end --temp 0 "${prompts[$i]}" > "$WORK/want-$i" || fail "reference $i"
done
"$MOED" down >/dev/null 2>&1

# Nothing is in use: all slots are free or resident.
settled() { [ "$(policy_field filling)" = 0 ] && [ "$(policy_field retired)" = 0 ] && slots_add_up; }
answers() { wait_until 30 "$MOED" run -n 1 "x"; }

# An answer that was cut short by the worker's death must be the beginning of the right one; one that ended, all of it.
check_answer() { # check_answer I EXIT
    local size
    size=$(wc -c < "$WORK/got-$1")
    if [ "$2" -eq 0 ]; then
        cmp -s "$WORK/want-$1" "$WORK/got-$1" || fail "$policy: wrong tokens after kills"
    else
        grep -qi again "$WORK/err-$1" || fail "$policy: $(cat "$WORK/err-$1")"
        # the last character may be half of one: compare all but its bytes
        [ "$size" -lt 4 ] || cmp -s -n $((size - 4)) "$WORK/want-$1" "$WORK/got-$1" || fail "$policy: wrong tokens before a kill"
    fi
}

"$MOED" up "$MODEL" --reproducible $SEGMENTS --device "$DEVICE" --policy moed >/dev/null 2>&1
kills=0 whole=0
for policy in "${POLICIES[@]}"; do
    "$MOED" policy $policy >/dev/null || fail "policy $policy"
    for ((round = 0; round < ROUNDS; round++)); do
        pids=()
        for i in "${!prompts[@]}"; do
            "$MOED" run -n $N --ignore-end --temp 0 "${prompts[$i]}" > "$WORK/got-$i" 2> "$WORK/err-$i" & pids+=($!)
        done
        sleep "0.$((RANDOM % 30 + 2))"
        case $((RANDOM % 3)) in
        0) victims=cpuexec ;;
        1) victims=worker ;;
        2) victims="worker cpuexec" ;;
        esac
        for victim in $victims; do kill -9 "$(pid_of "$victim")" 2>/dev/null && kills=$((kills + 1)); done
        for i in "${!pids[@]}"; do
            set +e; wait "${pids[$i]}"; code=$?; set -e
            check_answer "$i" $code
            [ $code -ne 0 ] || whole=$((whole + 1))
        done
        answers || fail "$policy: no answer after $victims died"
    done
    "$MOED" run -n $N --ignore-end --temp 0 "${prompts[0]}" | cmp -s - "$WORK/want-0" || fail "$policy: wrong answer afterwards"
    wait_until 10 settled || fail "$policy: slots: $("$MOED" policy --json)"
done
[ "$whole" -gt 0 ] || fail "no answer survived: nothing was tested of cpuexec's deaths"
say "ok: $kills kills under ${#POLICIES[@]} policies on $DEVICE, $whole answers whole"
