#!/bin/bash
# The page's files as a moed-http serves them; it needs no deployment. usage: served.sh MOED PAGE
MOED=$1 PAGE=$2
. "$(dirname "$0")/../deployment.sh"
command -v python3 > /dev/null || skip "python3 is not here"
echo "secret-of-the-page" > "$WORK/keys"
chmod 600 "$WORK/keys"
"$(dirname "$MOED")/moed-http" --run "$RUN" --listen 0 --api-key-file "$WORK/keys" > /dev/null 2> "$WORK/log" &
frontend=$!
wait_until 10 grep -q ready "$WORK/log" || fail "$(cat "$WORK/log")"
port=$(port_of "$WORK/log")
python3 "$(dirname "$0")/served.py" "$port" secret-of-the-page "$PAGE" || fail "see above"
kill "$frontend"
wait "$frontend" || fail "moed-http ended with $?"
say ok
