#!/bin/bash
# Deployments that say no --kv-cache share the memory that is free: each leaves to the next what it has promised to its conversations and not
# filled. usage: kv_shares.sh MOED MODEL
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"
# several deployments: each has its own directory below
unset MOED_RUN
export XDG_RUNTIME_DIR=$WORK/r
mkdir -m 700 "$XDG_RUNTIME_DIR"
end_all() {
    status=$?
    for name in one two three; do "$MOED" down $name > /dev/null 2>&1 || true; done
    (exit $status)
    end
}
trap end_all EXIT
# size NAME: the KV cache in units of 10 MB, from memd's log.
size() { sed -n 's/.*KV cache: up to \([0-9]*\)\.\([0-9][0-9]\) GB.*/\1\2/p' "$XDG_RUNTIME_DIR/moed/$1/memd.log" | tail -n 1 | sed 's/^0*//'; }

for name in one two three; do start_deployment "$MODEL" --name $name; done
one=$(size one) two=$(size two) three=$(size three)
say "KV caches: $one, $two, $three times 10 MB"
[ "$one" -ge 40 ] || skip "too little memory is free"
# half of what is free each: 4, 2, 1. The memory that others use changes meanwhile.
[ $(( two * 10 )) -le $(( one * 7 )) ] || fail "the second deployment takes what the first has promised"
[ $(( three * 10 )) -le $(( two * 8 )) ] || fail "the third deployment takes what the first two have promised"
say ok
