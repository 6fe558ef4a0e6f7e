# Functions of the shell tests. Each test has a deployment of its own in a new directory; the script stops and removes it at the end.
# A test sources this file with MOED, the moed program, set, and perhaps MODEL, the model file. This file sets $RUN and $WORK.
set -eu
[ -e "${MODEL:-/}" ] || { echo "skipped: $MODEL does not exist" >&2; exit 77; }
WORK=$(mktemp -d "${TMPDIR:-/tmp}/moed-test-XXXXXX")
RUN=$WORK/run
export MOED_RUN=$RUN
export XDG_CACHE_HOME=$WORK/cache # calibrations
export XDG_CONFIG_HOME=$WORK/config # options of moed up
export MOED_DEVICE=host # of `moed up` without --device: what the tests compare with

# A test that is killed cannot clean up after itself: this process does, for all deployments in $WORK.
# shellcheck disable=SC2016 # for the inner shell
setsid bash -c 'tail --pid="$0" -f /dev/null
    find "$2" -name supervise.pid -printf "%h\n" | while read -r run; do MOED_RUN=$run "$1" down; done
    rm -rf "$2"' $$ "$MOED" "$WORK" </dev/null >/dev/null 2>&1 &
GUARD=$!
disown $GUARD # so that `wait` does not wait for it

end() {
    status=$?
    "$MOED" down >/dev/null 2>&1 || true
    if [ $status -ne 0 ] && [ $status -ne 77 ] && [ -d "$RUN" ]; then
        echo "-- logs of the deployment:" >&2
        tail -n 40 "$RUN"/*.log >&2 || true
    fi
    rm -rf "$WORK"
    kill -- "-$GUARD" 2>/dev/null || true
    exit $status
}
trap end EXIT
trap 'exit 130' INT TERM

say() { printf '%s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
# start_deployment ARGUMENT...: moed up; if it fails, the test fails with what it printed.
start_deployment() { "$MOED" up "$@" >/dev/null 2>"$WORK/up" || { cat "$WORK/up" >&2; fail "moed up $*"; }; }
skip() { printf 'skipped: %s\n' "$*" >&2; exit 77; }

# pid_of PROCESS: prints the pid from the lock file that the process holds.
pid_of() { tr -dc 0-9 < "$RUN/$1.pid"; }
# port_of LOG: where the last moed-http of this log listens.
port_of() { sed -n 's/.*listening at https\{0,1\}:[^"]*:\([0-9]*\)"\{0,1\}}\{0,1\}$/\1/p' "$1" | tail -n 1; }

# wait_until SECONDS COMMAND...: run the command until it succeeds. On a busy machine it may take three times as long.
wait_until() {
    left=$(( $1 * 60 )); shift
    until "$@" >/dev/null 2>&1; do
        left=$(( left - 1 ))
        [ $left -gt 0 ] || return 1
        sleep 0.05
    done
}

# stop_process PID...: stops them. kill returns while their threads still run: on a loaded machine they go on for some tenths of a second.
stop_process() {
    local pid
    kill -STOP "$@"
    for pid; do wait_until 30 is_stopped "$pid" || fail "process $pid does not stop"; done
}
is_stopped() { ! cat "/proc/$1"/task/*/status | grep '^State:' | grep -qv '[TtZX] ('; }

# while_running PID COMMAND...: runs the command until it succeeds. False if the process has ended before.
while_running() {
    local pid=$1; shift
    while kill -0 "$pid" 2>/dev/null; do
        ! "$@" >/dev/null 2>&1 || return 0
        sleep 0.02
    done
    return 1
}

# again_until CONDITION COMMAND...: runs the command up to ten times, until CONDITION holds after it. For what a loaded machine shows
# less often: that requests overlap, that a load arrives while others wait.
again_until() {
    condition=$1; shift
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        "$@"
        ! "$condition" || return 0
    done
    return 1
}

# policy_field NAME: prints a field of `moed policy --json`.
policy_field() { "$MOED" policy --json | tr '{,}' '\n' | sed -n "s/^ *\"$1\": *//p"; }
# True if the free, resident, filling and retired slots add up to all slots.
slots_add_up() {
    "$MOED" policy --json | tr '{,}' '\n' | awk -F': ' '{ gsub(/[ "]/, "", $1); v[$1] = $2 }
        END { exit !(v["slots"] > 0 && v["slots"] == v["free"] + v["resident"] + v["filling"] + v["retired"]) }'
}

# metric PROCESS NAME: prints the value of one metric line.
metric() { "$MOED" metrics "$1" | awk -v name="$2" '$1 == name { print $2; exit }'; }

# ask_all TOKENS FILE: sends all of the array `prompts` at once; writes one line of tokens each to $WORK/FILE. A request may take
# ASK_SECONDS (default: any time).
ask_all() {
    local pids=() i
    for i in "${!prompts[@]}"; do
        timeout -k 1 "${ASK_SECONDS:-0}" "$MOED" run -n "$1" --ignore-end --temp 0 --json "${prompts[$i]}" > "$WORK/answer-$i" & pids+=($!)
    done
    for i in "${!pids[@]}"; do wait "${pids[$i]}" || fail "request $i of $2"; done
    for i in "${!prompts[@]}"; do
        sed -n 's/.*"tokens": *\(\[[^]]*\]\).*/\1/p' "$WORK/answer-$i"
    done > "$WORK/$2"
    [ "$(wc -l < "$WORK/$2")" -eq ${#prompts[@]} ] || fail "an answer without tokens"
}
