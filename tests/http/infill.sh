#!/bin/bash
# Fill-in-the-middle over HTTP, as editors ask for it, before a model with tokens for it and one without. usage: infill.sh MOED MODEL
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"
command -v python3 > /dev/null || skip "python3 is not here"
here=$(dirname "$0")
up() { "$MOED" up "$1" --ctx 4096 --http 127.0.0.1:0 > "$WORK/up" 2>&1 || fail "no deployment: $(cat "$WORK/up")"; }

first=$(python3 "$here/fim_model.py" "$MODEL" "$WORK/fim.gguf") || fail "no model"
up "$WORK/fim.gguf"
python3 "$here/http_infill.py" "$(port_of "$RUN/http.log")" "$first" || fail "see above"
grep -q 'POST /infill 200 ok.*ignored=[a-z_,:]*n_indent' "$RUN/http.log" || fail "the access log does not name n_indent: $(tail -n 3 "$RUN/http.log")"

"$MOED" down > /dev/null
up "$MODEL"
python3 "$here/http_infill.py" "$(port_of "$RUN/http.log")" none || fail "see above"
say ok
