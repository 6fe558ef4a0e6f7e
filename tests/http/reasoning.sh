#!/bin/bash
# Reasoning and tool calls over HTTP, of a model whose chat template knows them. usage: reasoning.sh MOED MODEL
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"
command -v python3 > /dev/null || skip "python3 is not here"
here=$(dirname "$0")
python3 "$here/other_template.py" "$MODEL" "$WORK/other.gguf"
"$MOED" up "$WORK/other.gguf" --ctx 1024 --http 127.0.0.1:0 > "$WORK/up" 2>&1 || fail "no deployment: $(cat "$WORK/up")"
port=$(port_of "$RUN/http.log")
grep -q "OPENAI_BASE_URL=http://127.0.0.1:$port/v1 " "$WORK/up" || fail "moed up does not print the port $port: $(cat "$WORK/up")"
python3 "$here/http_reasoning.py" "$port" || fail "see above"

# The mark of reasoning as one token: a budget can forbid it.
"$MOED" down > /dev/null
python3 "$here/other_template.py" "$MODEL" "$WORK/think.gguf" --think-token
echo "reasoning-field = reasoning" > "$WORK/http.conf"
"$MOED" up "$WORK/think.gguf" --ctx 512 --http 127.0.0.1:0 --http-config "$WORK/http.conf" > "$WORK/up" 2>&1 || fail "no deployment: $(cat "$WORK/up")"
port=$(port_of "$RUN/http.log")
python3 "$here/http_reasoning.py" "$port" reopen short_name || fail "see above"
say ok
