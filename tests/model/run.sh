#!/bin/sh
# Checks the Promela models with spin. In a model of the source's algorithm spin must find no error. In a model with a planted fault
# spin must find an error, else the model proves nothing. Exit 77: spin is not installed.
set -u
here=$(cd "$(dirname "$0")" && pwd)
cc=${CC:-cc}
if ! command -v spin >/dev/null 2>&1; then
    echo "skipped: spin is not installed (Debian package spin)"
    exit 77
fi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0
depth=100000 # of the search, in steps

# check MODEL right|wrong [-DNAME]
check() {
    model=$1 expected=$2 define=${3:-}
    rm -f pan* ./*.trail
    # shellcheck disable=SC2086 # an empty define is no argument
    if ! spin $define -a "$here/$model.pml" >spin.log 2>&1 ||
        ! $cc -O1 -w -DSAFETY -DNOREDUCE -o pan pan.c >cc.log 2>&1; then
        cat spin.log cc.log 2>/dev/null
        echo "FAILED  $model $define: the model does not build"
        failures=$((failures + 1))
        return
    fi
    ./pan -m$depth >pan.log 2>&1
    errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.log)
    states=$(sed -n 's/^ *\([0-9]*\) states, stored.*/\1/p' pan.log)
    result=right
    [ "$errors" = 0 ] || result=wrong
    if grep -q "max search depth too small" pan.log || [ -z "$errors" ]; then
        result="unfinished"
    fi
    if [ "$result" = "$expected" ]; then
        echo "ok      $model $define: $result, as expected ($states states)"
    else
        cat pan.log
        echo "FAILED  $model $define: $result, expected $expected"
        failures=$((failures + 1))
    fi
}

check ring right
check ring wrong -DFAULT_EARLY_PUBLISH
check ring wrong -DFAULT_EARLY_FREE
check doorbell right
check doorbell right -DNO_SECOND_LOOK
check doorbell right -DLATE_VALUE
check doorbell wrong -DFAULT_NO_RECHECK
check doorbell wrong -DFAULT_ASK_FIRST
check shadow_table right
check shadow_table wrong -DFAULT_LATE_CHANGES
check shadow_table wrong -DFAULT_LATE_EPOCH
depth=2000000
check slots right
check slots wrong -DFAULT_EARLY_REUSE
check slots wrong -DFAULT_SEEN_BEFORE_WORD
check slots wrong -DFAULT_LATE_EPOCH
check slots wrong -DFAULT_NUMBER_BEFORE_BYTES
check slots wrong -DFAULT_RESTORE_OTHERS
check slots right -DFLAGS
for fault in FLAG_BEFORE_BYTES WORD_BEFORE_SLOT SAME_NUMBER EARLY_REUSE; do
    check slots wrong "-DFLAGS -DFAULT_$fault"
done
check pages right
for fault in LATE_EMPTY SAME_GENERATION EVICT_PINNED NO_SECOND_LOOK EARLY_FORGET KEEP_CLAIM NO_LOOK_AT_N; do
    check pages wrong "-DFAULT_$fault"
done
check copies right
for fault in OUT_OF_ORDER FLAGS_FIRST END_ALL ONE_ANNOUNCEMENT EVICT_FILLING EARLY_REUSE; do
    check copies wrong "-DFAULT_$fault"
done
check arena right
check arena wrong -DFAULT_USE_AT_ONCE
check arena wrong -DFAULT_FREE_AT_ONCE
check arena wrong -DFAULT_IN_GRACE
check arena wrong -DFAULT_SERIAL_FIRST
check arena wrong -DFAULT_SEEN_LAST
check arena wrong -DFAULT_REFUSED_SEEN
[ "$failures" -eq 0 ]
