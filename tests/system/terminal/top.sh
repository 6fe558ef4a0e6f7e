#!/bin/bash
# `moed top` at a pseudo-terminal, of three deployments. usage: top.sh MOED MODEL
MOED=$1 MODEL=$2
. "$(dirname "$0")/../../deployment.sh"
. "$(dirname "$0")/python.sh"
export XDG_RUNTIME_DIR=$WORK
unset MOED_RUN
FIRST=first$$ SECOND=second$$ THIRD=third$$ # moed ps lists deployments of other folders too
end_all() {
    status=$?
    trap - EXIT
    set +e
    for name in $FIRST $SECOND $THIRD; do "$MOED" down "$name" > /dev/null 2>&1; done
    RUN=$WORK/moed/$SECOND
    (exit $status)
    end
}
trap end_all EXIT
start_deployment "$MODEL" --name $FIRST --threads 1
start_deployment "$MODEL" --name $SECOND --ctx 16384 --threads 1 --device emu:vram=30%,link=200M
"$MOED" up "$MODEL" --name $THIRD --threads 1 --ram 60% > /dev/null 2> "$WORK/err" || fail "no deployment with --ram: $(cat "$WORK/err")"
"$PYTHON" "$(dirname "$0")/top.py" "$MOED" $FIRST $SECOND $THIRD || fail "see above"
say ok
