#!/bin/bash
# The page in Chromium, before a real deployment and before a server with answers of our choice. It needs the packages of
# the section "browser" of deploy/packages. usage: browser.sh MOED MODEL [FOLDER for screenshots]
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"
for python in /usr/bin/python3 python3; do # Debian's package is in Debian's Python
    "$python" -c 'import selenium' 2> /dev/null && break
    python=
done
[ -n "$python" ] || skip "python3-selenium is not here (deploy/install-packages browser)"
for program in chromium chromedriver; do
    command -v "$program" > /dev/null || skip "$program is not here (deploy/install-packages browser)"
done
"$MOED" up "$MODEL" --ctx 65536 --threads 1 --http 127.0.0.1:0 > "$WORK/up" 2>&1 || fail "no deployment: $(cat "$WORK/up")"
address=$(sed -n 's/^ *Browsers *//p' "$WORK/up")
[ -n "$address" ] || fail "moed up does not print the page's address: $(cat "$WORK/up")"
here=$(cd "$(dirname "$0")" && pwd)
PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1 "$python" "$here/browser.py" "$address" "$RUN" "$here/../../client/http/page" "$WORK" ${3:+"$3"} ||
    fail "see above"
say ok
