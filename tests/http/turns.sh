#!/bin/bash
# API keys take turns at the worker's slots, and at questions that it answers. usage: turns.sh MOED MODEL
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"
command -v python3 > /dev/null || skip "python3 is not here"
printf 'alice secret-of-alice\nbob secret-of-bob\n' > "$WORK/keys"
chmod 600 "$WORK/keys"
echo "{% for m in messages %}{% if m.content == 'refuse' %}{{ raise_exception('refused here') }}{% endif %}{{ m.content }}{% endfor %}" > "$WORK/template"
start_deployment "$MODEL" --chat-template "$WORK/template" --ctx 8192 --parallel 2 --watchdog 0 --http 127.0.0.1:0 --api-key-file "$WORK/keys"
python3 "$(dirname "$0")/http_turns.py" "$(port_of "$RUN/http.log")" "$RUN" "$MOED" || fail "see above"
say ok
