#!/bin/bash
# The expert cache under kills. Under each policy the script kills the worker, cpuexec or both at random instants of their requests,
# from the first of the prompt on, and sometimes the next worker while it attaches. No token may be wrong, and no slot may be lost.
#   [ROUNDS=2] [STEPS=0] [POLICIES="moed ..."] [TOKENS=48] [DEVICE=emu:vram=30%,link=400M] expert_cache_kill.sh MOED MODEL
# ROUNDS: least rounds a policy. STEPS: least decode steps a policy; 1000 is a long run. TOKENS: of an answer.
MOED=$1 MODEL=$2 ROUNDS=${ROUNDS:-2} STEPS=${STEPS:-0} DEVICE=${DEVICE:-emu:vram=30%,link=400M}
read -ra POLICIES <<< "${POLICIES:-moed ondemand static lru lfu mixtral-offloading eam threshold score qstar layerwise dali prescope moepic promoe finemoe}"
. "$(dirname "$0")/../deployment.sh"
RANDOM=7
N=${TOKENS:-48}
prompts=("Once upon a time" "$(seq -s ' ' 1 $((N < 80 ? 3 * N / 2 : 120)))" "0 1 2 3") # the second has a long prefill
SEGMENTS="--segment-bytes 65536"
"$MOED" up "$MODEL" --reproducible $SEGMENTS >/dev/null 2>&1
for i in "${!prompts[@]}"; do
    "$MOED" run -n "$N" --ignore-end --temp 0 "${prompts[$i]}" > "$WORK/want-$i" || fail "reference $i"
done
"$MOED" down >/dev/null 2>&1

# No slot is in use: all slots are free or resident.
settled() { [ "$(policy_field filling)" = 0 ] && [ "$(policy_field retired)" = 0 ] && slots_add_up; }
answers() { wait_until 30 "$MOED" run -n 1 "x"; }
# The supervisor waits longer after each death of a process. These restarts skip the wait.
skip_backoff() {
    local process
    for process in cpuexec worker; do
        kill -0 "$(pid_of $process)" 2>/dev/null || "$MOED" restart $process >/dev/null || fail "$policy: $process does not start again"
    done
}
idle() { [ "$(metric worker moed_worker_requests_running)" = 0 ]; }

# progress: prints the worker's RUNNING REQUESTS, DECODE STEPS and PROMPT TOKENS; zeros if no worker runs.
progress() {
    "$MOED" metrics worker 2>/dev/null | awk '$1 == "moed_worker_requests_running" { r = $2 }
        $1 == "moed_worker_decode_steps_total" { s = $2 } $1 == "moed_worker_prompt_tokens_total" { p = $2 } END { print r + 0, s + 0, p + 0 }'
}

ask_in_background() {
    local i
    pids=()
    for i in "${!prompts[@]}"; do
        "$MOED" run -n "$N" --ignore-end --temp 0 "${prompts[$i]}" > "$WORK/got-$i" 2> "$WORK/err-$i" & pids+=($!)
    done
}

# If the worker's death cut the answer short, the answer must be the beginning of the right one. Otherwise it must be the right one.
check_answer() { # check_answer I EXIT
    local size
    size=$(wc -c < "$WORK/got-$1")
    if [ "$2" -eq 0 ]; then
        cmp -s "$WORK/want-$1" "$WORK/got-$1" || fail "$policy: wrong tokens after kills"
    else
        grep -qi again "$WORK/err-$1" || fail "$policy: $(cat "$WORK/err-$1")"
        # the last character may be incomplete: do not compare its bytes
        [ "$size" -lt 4 ] || cmp -s -n $((size - 4)) "$WORK/want-$1" "$WORK/got-$1" || fail "$policy: wrong tokens before a kill"
    fi
}
# Checks all answers. cut: the number of answers that were cut short.
check_answers() {
    local i code
    cut=0
    for i in "${!pids[@]}"; do
        set +e; wait "${pids[$i]}"; code=$?; set -e
        check_answer "$i" $code
        if [ $code -eq 0 ]; then whole=$((whole + 1)); else cut=$((cut + 1)); fi
    done
}

# kill_in_attach PID: kills the successor of worker PID, and counts the kill if the successor was not ready yet
kill_in_attach() {
    local left=2000 pid
    ("$MOED" restart worker >/dev/null 2>&1 || true) & # skips the wait of the supervisor
    while pid=$(pid_of worker 2>/dev/null) && { [ -z "$pid" ] || [ "$pid" = "$1" ]; }; do
        left=$((left - 1))
        [ $left -gt 0 ] || fail "no new worker started"
        sleep 0.005
    done
    sleep "0.0$((RANDOM % 5))"
    kill -9 "$pid" 2>/dev/null || return 0
    kills=$((kills + 1))
    wait_until 10 grep -q "worker started (pid $pid)" "$RUN/supervise.log" || fail "worker $pid is not in the log"
    in_attach=$((in_attach + $(awk -v pid="(pid $pid)" 'after && /worker is ready/ { ready = 1 } after && /worker (has|started)/ { exit }
        index($0, "worker started " pid) { after = 1 } END { print !ready }' "$RUN/supervise.log")))
}

# kill_round: kills at a random instant of the requests. False if the requests had ended by then.
kill_round() {
    local before_steps before_prompt at_running at_steps at_prompt steps prompt victims victim dead died=0 worked=no victim_pids=()
    read -r _ before_steps before_prompt < <(progress)
    ask_in_background
    sleep "$(awk -v ms=$((RANDOM * 32768 + RANDOM)) -v of=$answer_ms 'BEGIN { print ms % of / 1000 }')"
    case $((RANDOM % 3)) in
    0) victims=cpuexec ;;
    1) victims=worker ;;
    2) victims="worker cpuexec" ;;
    esac
    dead=$(pid_of worker)
    for victim in $victims; do victim_pids+=("$(pid_of "$victim")"); done
    read -r at_running at_steps at_prompt < <(progress) # the kill follows at once
    if [ "$at_running" != 0 ]; then
        for victim in "${victim_pids[@]}"; do kill -9 "$victim" 2>/dev/null && died=$((died + 1)); done
    else
        check_answers
        policy_steps=$((policy_steps + N))
        return 1
    fi
    kills=$((kills + died))
    [ "$victims" = cpuexec ] || [ $((RANDOM % 3)) != 0 ] || kill_in_attach "$dead"
    check_answers
    skip_backoff
    answers || fail "$policy: no answer after $victims died"
    wait_until 10 idle || fail "$policy: requests of the dead go on"
    read -r _ steps prompt < <(progress)
    # The kill hit work if the worker made progress without cpuexec; or if the worker's death cut an answer short; or if the next
    # worker, which counts from 0, began an answer again because the client had no token of it.
    if [ "$victims" = cpuexec ]; then
        policy_steps=$((policy_steps + steps - before_steps))
        [ "$steps" = "$at_steps" ] && [ "$prompt" = "$at_prompt" ] || worked=yes
    else
        policy_steps=$((policy_steps + at_steps - before_steps + steps))
        [ "$cut" = 0 ] && [ "$steps" = 0 ] || worked=yes
    fi
    aimed=$((aimed + died))
    [ $worked = yes ] || return 0
    in_work=$((in_work + died))
    [ $((at_prompt - before_prompt)) -ge "$prompt_tokens" ] || in_prompts=$((in_prompts + died))
}

"$MOED" up "$MODEL" --reproducible $SEGMENTS --device "$DEVICE" --policy moed >/dev/null 2>&1
kills=0 aimed=0 in_work=0 in_prompts=0 in_attach=0 whole=0 all_steps=0 fewest=
policy=moed
read -r _ _ before < <(progress)
ask_in_background
check_answers
started=$(date +%s%N)
ask_in_background
check_answers
answer_ms=$((($(date +%s%N) - started) / 1000000))
read -r _ _ prompt_tokens < <(progress)
prompt_tokens=$(((prompt_tokens - before) / 2))
for policy in "${POLICIES[@]}"; do
    policy_steps=0
    "$MOED" policy "$policy" >/dev/null || fail "policy $policy"
    for ((round = 0; round < ROUNDS || policy_steps < STEPS; round++)); do
        until kill_round; do :; done
    done
    "$MOED" run -n "$N" --ignore-end --temp 0 "${prompts[0]}" | cmp -s - "$WORK/want-0" || fail "$policy: wrong answer afterwards"
    wait_until 10 settled || fail "$policy: slots: $("$MOED" policy --json)"
    all_steps=$((all_steps + policy_steps))
    [ -n "$fewest" ] && [ "$fewest" -le $policy_steps ] || fewest=$policy_steps
done
# Of many rounds some are to hit a prefill, and a worker that attaches: on a busy machine that may take more of them.
many=$((ROUNDS * ${#POLICIES[@]} >= 32))
for ((try = 0; many && try < 40 && (in_prompts == 0 || in_attach == 0); try++)); do kill_round || true; done
say "$kills kills under ${#POLICIES[@]} policies on $DEVICE: $in_work during work ($in_prompts of them in prefill), \
$in_attach while a worker attached; $all_steps decode steps, at least $fewest a policy; $whole whole answers"
[ "$whole" -gt 0 ] || fail "no answer survived, so the test did not cover cpuexec's death"
[ "$in_work" -gt 0 ] && [ $((in_work * 2)) -ge $aimed ] || fail "most kills hit idle processes"
[ $many = 0 ] || { [ "$in_prompts" -gt 0 ] && [ "$in_attach" -gt 0 ]; } || fail "no kill in prefill, or none while a worker attached"
