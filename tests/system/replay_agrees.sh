#!/bin/bash
# replay_agrees.sh MOED MOED-REPLAY MODEL: the simulator against reality. What is found on the device under ondemand, lru and lfu does not
# hang on time: an emulated device and a replay of the trace that was recorded find and load the same number of segments.
set -eu
check=$(cd "$(dirname "$0")/../../bench" && pwd)/replay_check.sh
text=$(cd "$(dirname "$0")/../../docs" && pwd)/token.md
got=$(mktemp)
trap 'rm -f "$got"' EXIT
"$check" "$1" "$2" "$3" "$text" -n 120 ondemand lru lfu >"$got"
cat "$got"
# | policy | found: real, replayed | loaded: real, replayed | ...
awk -F'|' '
    function fail(why) { print "replay_agrees.sh:" $2 ": " why; failed = 1 }
    NR > 2 {
        split($3, found, ","); split($4, loaded, ",")
        if (found[1] + 0 != found[2] + 0) fail("found on the device" $3)
        if (loaded[1] + 0 != loaded[2] + 0) fail("loaded" $4)
        if (loaded[1] <= 0) fail("nothing was loaded")
        if ((found[1] > 0) == ($2 ~ /ondemand/)) fail("ondemand alone finds nothing, not" $3)
        rows++
    }
    END { if (rows != 3) { print "replay_agrees.sh: " rows + 0 " rows, not 3"; failed = 1 } exit failed }' "$got"
echo "replay_agrees.sh: ok"
