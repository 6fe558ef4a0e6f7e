#!/bin/bash
# What a deployment needs of the system is missing. With few descriptors, clients wait and all are answered.
# Files of the runtime directory are removed while a deployment runs: it makes them again or ends, and is never left
# running where `moed ps` and `moed down` do not see it.
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"
up() { # and keeps the pids
    "$MOED" up "$MODEL" >/dev/null 2>&1
    keep_pids
}
keep_pids() { pids="$(pid_of supervise) $(pid_of memd) $(pid_of worker)"; }
processes() { for p in $pids; do ! readlink "/proc/$p/exe" >/dev/null || echo "$p"; done; } # a zombie has no exe
answers() { timeout 10 "$MOED" run -n 4 hi; }

# Few descriptors: clients wait for a connection, and all are answered.
limit=$(ulimit -Sn)
ulimit -Sn 48
up
ulimit -Sn "$limit"
asking=()
for i in $(seq 40); do
    timeout 60 "$MOED" run -n 8 --temp 0 --ignore-end hi > "$WORK/answer-$i" 2>/dev/null & asking+=($!)
done
for i in "${!asking[@]}"; do
    wait "${asking[$i]}" || fail "with 48 descriptors a client of 40 got no answer"
    cmp -s "$WORK/answer-1" "$WORK/answer-$((i + 1))" || fail "answers differ with 48 descriptors"
done
[ "$pids" = "$(pid_of supervise) $(pid_of memd) $(pid_of worker)" ] || fail "a process died for want of descriptors"
say "40 clients of processes with 48 descriptors are answered"

# The file system with the runtime directory is full: `moed up` says so, whichever process fails first.
full() { # in a mount namespace of its own; with no page free, and with one
    page=$(getconf PAGESIZE) small=$WORK/small
    mkdir "$small"
    mount -t tmpfs -o "size=$((10 * page)),mode=700" none "$small" 2>/dev/null || exit 77
    export MOED_RUN=$small/run
    mkdir -m 700 "$MOED_RUN"
    dd if=/dev/zero of="$small/fill" bs="$page" 2>/dev/null
    "$MOED" up "$MODEL" 2>"$WORK/full-supervise"
    rm -f "$MOED_RUN"/*
    truncate -s $((9 * page)) "$small/fill"
    "$MOED" up "$MODEL" 2>"$WORK/full-memd"
    exit 0
}
export -f full
export MOED MODEL WORK
if unshare -rm bash -c full 2>/dev/null; then
    for process in supervise memd; do
        grep -q "No space left on device" "$WORK/full-$process" || fail "a full disk before $process: $(cat "$WORK/full-$process")"
    done
    say "moed up says that the disk is full"
else
    say "no file system can be mounted here"
fi

rm "$RUN"/*.pid
"$MOED" ps | grep -q worker || fail "ps does not see a deployment without pid files"
"$MOED" down || fail "down"
[ -z "$(processes)" ] || fail "down said that all is stopped, but these run: $(processes)"
say "stopped without pid files"

# as a program does that removes old files
"$MOED" up "$MODEL" --watchdog 4 >/dev/null 2>&1
rm "$RUN"/*.log
! "$MOED" logs 2>&1 | grep "has not been started" || fail "logs denies a deployment that runs"
has_new_log() { [ -e "$RUN/$1.log" ] && [ "$(stat -L -c %i "/proc/$(pid_of "$1")/fd/2" 2>/dev/null)" = "$(stat -c %i "$RUN/$1.log")" ]; }
for process in supervise memd worker; do
    wait_until 20 [ -e "$RUN/$process.log" ] || fail "the log of $process is not made again"
    # only root may look at a confined process
    [ "$(id -u)" -ne 0 ] || wait_until 20 has_new_log "$process" || fail "$process does not use its new log"
done
grep -q "supervise.log has vanished" "$RUN/supervise.log" || fail "no word of the removed logs"
"$MOED" down || fail "down"
"$MOED" logs worker | grep -q stopped || fail "no line of the worker is in its new log"
say "removed logs are made again"

up
rm "$RUN"/*
wait_until 20 answers || fail "no answer after all files were removed"
"$MOED" ps | grep -q 'worker.*ready' || fail "ps after all files were removed"
say "answers again after all files were removed"

keep_pids
rm -rf "$RUN"
gone() { [ -z "$(processes)" ]; }
wait_until 20 gone || fail "without its directory these run on: $(processes)"
say "ok"
