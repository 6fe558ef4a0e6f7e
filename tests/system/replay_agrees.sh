#!/bin/bash
# replay_agrees.sh MOED MOED-REPLAY MODEL: compares the simulator with a deployment. Under ondemand, lru and lfu the hits do not depend
# on time. So a deployment on an emulated device and a replay of its recorded trace find and load the same number of segments.
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
        if ((found[1] > 0) == ($2 ~ /ondemand/)) fail("only ondemand may have no hits, got" $3)
        rows++
    }
    END { if (rows != 3) { print "replay_agrees.sh: " rows + 0 " rows, not 3"; failed = 1 } exit failed }' "$got"
echo "replay_agrees.sh: ok"
