#!/bin/bash
# `moed chat` at a pseudo-terminal. usage: chat.sh MOED MODEL [edit]; edit: moed was built with libedit
MOED=$1 MODEL=$2
. "$(dirname "$0")/../../deployment.sh"
. "$(dirname "$0")/python.sh"
export XDG_STATE_HOME=$WORK/state
start_deployment "$MODEL" --ctx 16384
"$PYTHON" "$(dirname "$0")/chat.py" "$MOED" "$WORK" "${3:-}" || fail "see above"
say ok
