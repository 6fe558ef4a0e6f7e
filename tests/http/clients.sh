#!/bin/bash
# The client libraries of OpenAI, Anthropic and Ollama against moed-http: they check every body and event by their own
# types. usage: clients.sh MOED MODEL VENV   (VENV: made once from requirements.txt, where PyPI can be reached)
MOED=$1 MODEL=$2 VENV=$3
. "$(dirname "$0")/../deployment.sh"
here=$(dirname "$0")
command -v python3 > /dev/null || skip "python3 is not here"
if ! cmp -s "$here/requirements.txt" "$VENV/made-of"; then
    rm -rf "$VENV"
    python3 -m venv "$VENV" > "$WORK/pip" 2>&1 || skip "no venv can be made (package python3-venv): $(tail -n 1 "$WORK/pip")"
    "$VENV/bin/pip" install --disable-pip-version-check --retries 1 --timeout 10 -q -r "$here/requirements.txt" > "$WORK/pip" 2>&1 ||
        skip "PyPI cannot be reached: $(tail -n 1 "$WORK/pip")"
    cp "$here/requirements.txt" "$VENV/made-of"
fi
printf 'test secret-of-test\nother secret-of-other\nother its-second-key\n' > "$WORK/keys"
chmod 600 "$WORK/keys"
"$MOED" up "$MODEL" --ctx 1024 --http 127.0.0.1:0 --api-key-file "$WORK/keys" > /dev/null 2>&1 || fail "no deployment with --http"
port=$(port_of "$RUN/http.log")
"$VENV/bin/python" "$here/http_clients.py" "$port" secret-of-test || fail "see above"
if grep ignored= "$RUN/http.log"; then fail "a parameter has no row"; fi
say ok
