# What the shell tests share: a deployment of their own in a fresh directory, stopped and removed at the end.
# Sourced with MOED, the moed program, set, and perhaps MODEL, its file; gives $RUN and $WORK.
set -eu
[ -e "${MODEL:-/}" ] || { echo "skipped: $MODEL is not here" >&2; exit 77; }
WORK=$(mktemp -d "${TMPDIR:-/tmp}/moed-test-XXXXXX")
RUN=$WORK/run
export MOED_RUN=$RUN
export XDG_CACHE_HOME=$WORK/cache # calibrations

end() {
    status=$?
    "$MOED" down >/dev/null 2>&1 || true
    if [ $status -ne 0 ] && [ $status -ne 77 ] && [ -d "$RUN" ]; then
        echo "-- logs of the deployment:" >&2
        tail -n 12 "$RUN"/*.log >&2 || true
    fi
    rm -rf "$WORK"
    exit $status
}
trap end EXIT
trap 'exit 130' INT TERM

say() { printf '%s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
skip() { printf 'skipped: %s\n' "$*" >&2; exit 77; }

# pid_of PROCESS: from the lock file that it holds.
pid_of() { tr -dc 0-9 < "$RUN/$1.pid"; }

# wait_until SECONDS COMMAND...: run the command until it succeeds.
wait_until() {
    left=$(( $1 * 20 )); shift
    until "$@" >/dev/null 2>&1; do
        left=$(( left - 1 ))
        [ $left -gt 0 ] || return 1
        sleep 0.05
    done
}

# policy_field NAME: of `moed policy --json`.
policy_field() { "$MOED" policy --json | tr '{,}' '\n' | sed -n "s/^ *\"$1\": *//p"; }
# Free, resident, filling and retired slots are all slots.
slots_add_up() {
    "$MOED" policy --json | tr '{,}' '\n' | awk -F': ' '{ gsub(/[ "]/, "", $1); v[$1] = $2 }
        END { exit !(v["slots"] > 0 && v["slots"] == v["free"] + v["resident"] + v["filling"] + v["retired"]) }'
}

# metric PROCESS NAME: the value of one metric line.
metric() { "$MOED" metrics "$1" | awk -v name="$2" '$1 == name { print $2; exit }'; }

# ask_all TOKENS FILE: all of the array `prompts` at once; one line of tokens each into $WORK/FILE.
ask_all() {
    local pids=() i
    for i in "${!prompts[@]}"; do
        "$MOED" run -n "$1" --ignore-end --temp 0 --json "${prompts[$i]}" > "$WORK/answer-$i" & pids+=($!)
    done
    for i in "${!pids[@]}"; do wait "${pids[$i]}" || fail "request $i of $2"; done
    for i in "${!prompts[@]}"; do
        sed -n 's/.*"tokens": *\(\[[^]]*\]\).*/\1/p' "$WORK/answer-$i"
    done > "$WORK/$2"
    [ "$(wc -l < "$WORK/$2")" -eq ${#prompts[@]} ] || fail "an answer without tokens"
}
