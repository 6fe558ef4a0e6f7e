#!/bin/bash
# tests/gpu/run ends with its table and its archive whatever the device does: wrong tokens, a kernel that never ends, a fault, an
# interrupt. None of its processes is left then.
#   run_test.sh BUILD
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/moed-gpu-test-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; [ ! -e "$work/out" ] || cat "$work/out" >&2; exit 1; }
"$root/tests/gpu/bundle" --build "$1" --simulated --folder-only "$work/moed" >/dev/null || fail "no bundle"
"$root/tests/gpu/bundle" --build "$1" --simulated --folder-only "$work" 2>/dev/null && fail "a folder with other files was replaced"

# run CODE FAULT OPTION...: the exit code is CODE, and everything is there at the end
run() {
    local code=0 want=$1 fault=$2
    shift 2
    POLICIES=ondemand TMPDIR=$work "$work/moed/run" --simulated --inject "$fault" --output "$work/results.tar.gz" "$@" >"$work/out" 2>&1 || code=$?
    ended "$want" $code "$fault"
}
ended() { # ended WANTED_CODE CODE FAULT
    [ "$2" = "$1" ] || fail "$3: exit code $2, expected $1"
    tail -n 1 "$work/out" | grep -q "^table and logs: $work/results.tar.gz$" || fail "$3: does not end with the archive's name"
    tar xzf "$work/results.tar.gz" -C "$work" || fail "$3: no archive"
    tail -n 1 "$work/gpu-results/table.txt" | diff - <(tail -n 2 "$work/out" | head -n 1) || fail "$3: another table in the archive"
    ! readlink /proc/[0-9]*/exe 2>/dev/null | grep "^$work/moed/" || fail "$3: processes are left"
    rm -r "$work/gpu-results" "$work/results.tar.gz"
}
has() { grep -qE "$1" "$work/out" || fail "the table lacks: $1"; }

run 1 mismatch --steps decode-25
has '^decode-25 +FAILED'
has '^  25 %.*: tokens differ at position [0-9]+$'
has '^\| 25 % \| ondemand \|' # the figures are there all the same
run 1 crash --steps "test_cuda_rows test_cuda_router"
has '^test_cuda_router +FAILED'
has '^test_cuda_rows +FAILED'
run 1 hang --steps "decode-25 test_cuda_rows" --step-seconds 4
has '^decode-25 +LATE|^  failed: 25 %: '
has '^test_cuda_rows +LATE'

POLICIES=ondemand TMPDIR=$work "$work/moed/run" --simulated --inject hang --steps decode-25 --output "$work/results.tar.gz" >"$work/out" 2>&1 &
pid=$!
deployed() { ls "$work"/tmp.*/tmp/moed-test-*/run/worker.pid >/dev/null 2>&1; }
for _ in {1..1200}; do deployed && break; sleep 0.05; done
deployed || fail "no deployment to interrupt"
kill -TERM $pid
wait $pid
ended 130 $? interrupt
has '^decode-25 +stopped'
echo "ok"
