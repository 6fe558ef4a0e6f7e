#!/bin/bash
# Deployments that say no --kv-cache share the memory that is free: each leaves to the next what it has promised to its conversations and not
# filled. usage: kv_shares.sh MOED MODEL
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"
# A memory cgroup for one of them: its folder, and the file with its limit. Empty: none can be made here.
group=/sys/fs/cgroup/memory limit=memory.limit_in_bytes
[ ! -e /sys/fs/cgroup/cgroup.controllers ] || group=/sys/fs/cgroup limit=memory.max
group=$group/moed-shares-$$
# several deployments: each has its own directory below
unset MOED_RUN
export XDG_RUNTIME_DIR=$WORK/r
mkdir -m 700 "$XDG_RUNTIME_DIR"
end_all() {
    status=$?
    for name in one two three; do "$MOED" down $name > /dev/null 2>&1 || true; done
    for name in four five six; do MOED_RUN=$WORK/s/$name "$MOED" down > /dev/null 2>&1 || true; done
    [ ! -d "$group" ] || wait_until 5 rmdir "$group" || true
    (exit $status)
    end
}
trap end_all EXIT
# size RUN: the KV cache in units of 10 MB, from memd's log.
size() { sed -n 's/.*KV cache: up to \([0-9]*\)\.\([0-9][0-9]\) GB.*/\1\2/p' "$1/memd.log" | tail -n 1 | sed 's/^0*//'; }

# The sizes follow the memory that is free: where other programs changed it meanwhile, they show nothing.
available() { awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo; }
free=$(available)
check() { # check SMALLER OTHER TENTHS WHY: SMALLER is at most so many tenths of OTHER
    local now
    [ $(($1 * 10)) -gt $(($2 * $3)) ] || return 0
    now=$(available)
    [ $((now * 10)) -ge $((free * 9)) ] && [ $((now * 9)) -le $((free * 10)) ] || skip "the free memory went from $free to $now MB"
    fail "$4"
}

for name in one two three; do start_deployment "$MODEL" --name $name; done
ours=$XDG_RUNTIME_DIR/moed
one=$(size "$ours/one") two=$(size "$ours/two") three=$(size "$ours/three")
say "KV caches: $one, $two, $three times 10 MB"
[ "$one" -ge 40 ] || skip "too little memory is free"
# half of what is free each: 4, 2, 1. The memory that others use changes meanwhile.
check "$two" "$one" 7 "the second deployment takes what the first has promised"
check "$three" "$two" 8 "the third deployment takes what the first two have promised"

say "deployments that start at once"
for name in one two three; do "$MOED" down $name > /dev/null 2>&1; done
for name in one two; do "$MOED" up "$MODEL" --name $name > /dev/null 2> "$WORK/up.$name" & done
wait
one=$(size "$ours/one") two=$(size "$ours/two")
say "KV caches: $one, $two times 10 MB"
less=$(( one < two ? one : two )) more=$(( one < two ? two : one ))
check $less $more 7 "both deployments take the same memory"

say "deployments beside each other, as in /run/moed"
mkdir -m 700 "$WORK/s"
MOED_RUN=$WORK/s/four start_deployment "$MODEL"
MOED_RUN=$WORK/s/five start_deployment "$MODEL"
four=$(size "$WORK/s/four") five=$(size "$WORK/s/five")
say "KV caches: $four, $five times 10 MB"
check "$four" $less 8 "a deployment with MOED_RUN takes what the user's others have promised"
check "$five" "$four" 8 "a deployment takes what one beside it has promised"

if mkdir "$group" 2> /dev/null && echo 600M 2> /dev/null > "$group/$limit"; then
    say "a deployment in a cgroup of 600 MB, less than the others have promised outside of it"
    (
        echo "$BASHPID" > "$group/cgroup.procs"
        MOED_RUN=$WORK/s/six start_deployment "$MODEL"
    ) || fail "no deployment in a cgroup"
    six=$(size "$WORK/s/six")
    [ "$six" -ge 10 ] || fail "a KV cache of $six times 10 MB in a cgroup of 600 MB"
else
    say "no memory cgroup can be made here"
fi
say ok
