#!/bin/bash
# tests/gpu/run ends with its table and its archive whatever the device does: wrong tokens, a kernel that never ends, a fault, an
# interrupt. None of its processes is left then.
#   run_test.sh BUILD
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/moed-gpu-test-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT

# Stand-ins for what a machine with a GPU has. nvidia-smi: two samples with kernels and one without, of a driver that has the older
# name of the reasons. dmesg: an error of the driver before, and one more each time. compute-sanitizer runs the program.
mkdir "$work/bin"
cat >"$work/bin/nvidia-smi" <<'END'
#!/bin/bash
[ "$1 $2" = "-i 0000:01:00.0" ] || exit 9
case $* in
*clocks_event_reasons*) echo 'Field "clocks_event_reasons.active" is not a valid field to query.'; exit 2 ;;
*clocks_throttle_reasons*)
    echo "0, 210, 405, 70.1, 30, 1, 8, 0x0000000000000001"
    echo "97, 1500, 2619, 690.5, 60, 5, 16, 0x0000000000000004"
    echo "98, 1700, 2619, 699.5, 62, 5, 16, 0x0000000000000024"
    case $* in *-lms*) exec sleep 1000 ;; esac ;;
*driver_version*) echo "580.1, Enabled, Default, Enabled, 700.00, 1980, 2619, 5, 16, Disabled, 9.0" ;;
*compute-apps*) for run in "${TMPDIR:-/tmp}"/moed-test-*/run; do echo "$(tr -dc 0-9 <"$run/memd.pid"), 600"; done ;;
*memory.used*) ls "${TMPDIR:-/tmp}"/moed-test-*/run/memd.pid >/dev/null 2>&1 && echo 1400 || echo 400 ;;
*) exit 1 ;;
esac
END
cat >"$work/bin/dmesg" <<END
#!/bin/bash
echo x >>"$work/called"
for ((i = 2; i < \$(wc -l <"$work/called"); i++)); do echo "[ \$i] NVRM: Xid (PCI:0000:01:00): 31, number \$i"; done
END
printf '#!/bin/bash\necho "$*, cases $MOED_TEST_CASES"\nexec "${@: -1}"\n' >"$work/bin/compute-sanitizer"
chmod +x "$work"/bin/*
export PATH=$work/bin:$PATH
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
    rm -rf "$work/logs"
    mv "$work/gpu-results" "$work/logs"
    rm "$work/results.tar.gz"
}
last() { tail -n 2 "$work/out" | head -n 1 | grep -qE "$1" || fail "the table does not end with: $1"; }
logged() { grep -qE -- "$2" "$work/logs/$1.log" || fail "the log of $1 lacks: $2"; }
has() { grep -qE "$1" "$work/out" || fail "the table lacks: $1"; }

# ran CODE OPTION...: without a fault
ran() {
    local code=0 want=$1
    shift
    POLICIES=ondemand TMPDIR=$work "$work/moed/run" --simulated --output "$work/results.tar.gz" "$@" >"$work/out" 2>&1 || code=$?
    ended "$want" $code "$*"
}

# What did not run is no success, and the table's last line names it.
ran 3 --seconds 0 --steps "bench-device decode-25 golden"
has '^bench-device +- +0 s  no time left$'
has '^decode-25 +- +0 s  there is no model$'
last '^4 steps did not run: bench-device model decode-25 golden$'
ran 3 --steps "test_cuda_rows no-such-step"
has '^test_cuda_rows +passed'
last '^1 steps did not run: no-such-step$'
ran 0 --steps test_cuda_rows
"$work/moed/run" --simulated --seconds x >"$work/out" 2>&1 && fail "--seconds x was taken"

# A step with the sanitizers' tests, chosen by their cases.
ran 0 --steps "racecheck-test_cuda_router synccheck-test_cuda_rows memcheck-test_cuda_place"
has '^racecheck-test_cuda_router +passed'
has '^synccheck-test_cuda_rows +passed'
has '^memcheck-test_cuda_place +passed'
logged 'racecheck-test_cuda_router' '--tool racecheck .*, cases test_gate$'
logged 'racecheck-test_cuda_router' '1 test\(s\) run'
logged 'memcheck-test_cuda_place' '--leak-check full'

# The GPU during a step, and the memory that its processes take.
ran 0 --steps "decode-resident prompts golden-no-pdl mps"
has '^GPU at 0000:01:00.0: driver 580.1, .* ECC Enabled, power limit 700.00 W, .* MIG Disabled, compute capability 9.0$'
has '^\| decode-resident \| 2 / 3 \| 1500 \| 2619 \| 690.5 \| 60 \| 5 x 16 \| power cap 100 %, temperature \(software\) 50 % \|$'
has '^\| device, no early launches \|'
has '^\| device \| 1000 \| [0-9]+ \| [0-9]+ \| [0-9.]+ MB \| 600 / - \|$'
has '^\| - \| moed \| 512 \| ran \|'
has '^golden-no-pdl +passed'
has '^mps +passed .*without flags ran tokens/s \(ran % waited for loads\), with MPS ran'
! grep -q Xid "$work/out" || fail "an error of the driver without a failure"

run 1 mismatch --steps decode-25
has '^decode-25 +FAILED'
has '^  25 %.*: tokens differ at position [0-9]+$'
has '^\| 25 % \| ondemand \|' # the figures are there all the same
rm "$work/called"
run 1 crash --steps "test_cuda_rows test_cuda_router"
has '^test_cuda_router +FAILED'
has '^test_cuda_rows +FAILED'
has '^  \[ [0-9]+\] NVRM: Xid \(PCI:0000:01:00\): 31, number [0-9]+$'
[ "$(grep -c Xid "$work/out")" = "$(grep Xid "$work/out" | sort -u | wc -l)" ] || fail "an error of the driver is there twice"
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
