#!/bin/bash
# More client libraries against moed-http, by hand: they take 300 MB and minutes to install, so CI does not run them.
# usage: more_clients.sh MOED MODEL VENV   (VENV: made once from requirements-more.txt, where PyPI can be reached)
MOED=$1 MODEL=$2 VENV=$3
. "$(dirname "$0")/../deployment.sh"
here=$(dirname "$0")
command -v python3 > /dev/null || skip "python3 is not here"
if ! cmp -s "$here/requirements-more.txt" "$VENV/made-of"; then
    rm -rf "$VENV"
    python3 -m venv "$VENV" > "$WORK/pip" 2>&1 || skip "no venv can be made (package python3-venv): $(tail -n 1 "$WORK/pip")"
    "$VENV/bin/pip" install --disable-pip-version-check --retries 1 --timeout 10 -q --no-deps -r "$here/requirements-more.txt" > "$WORK/pip" 2>&1 ||
        skip "PyPI cannot be reached: $(tail -n 1 "$WORK/pip")"
    cp "$here/requirements-more.txt" "$VENV/made-of"
fi
"$MOED" up "$MODEL" --ctx 1024 --http 127.0.0.1:0 > /dev/null 2>&1 || fail "no deployment with --http"
port=$(port_of "$RUN/http.log")
mkdir "$WORK/clients"
"$VENV/bin/python" "$here/http_more_clients.py" "$port" "$WORK/clients" || fail "see above"
if grep ignored= "$RUN/http.log"; then fail "a parameter has no row"; fi
say ok
