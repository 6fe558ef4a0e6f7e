#!/bin/bash
# deploy/: whoever replaces a container's arguments repeats those of the base, --drain too. usage: drain_arguments.sh SOURCE
set -eu
fail() { echo "FAILED: $*" >&2; exit 1; }
found=0
# Argument lists that begin with an option, and command lines of moed-http.
while IFS= read -r line; do
    found=$((found + 1))
    [[ $line =~ --drain[=\",\ ]+60 ]] || fail "no --drain 60: $line"
done < <(grep -rnE '(args|command|value): \[--(kv-cache|device)|exec moed-http' "$1"/deploy/kubernetes "$1"/deploy/container/*.yaml)
[ $found -ge 5 ] || fail "$found lists of arguments were found: another pattern is needed"
# The time until SIGKILL is longer than the wait for the router, --drain and the processes.
while read -r name seconds; do
    [ "$seconds" -ge 90 ] || fail "$name $seconds"
done < <(grep -rhoE '(terminationGracePeriodSeconds|stop_grace_period): [0-9]+' "$1"/deploy/kubernetes/base/moed.yaml "$1"/deploy/container/compose.yaml)
echo "ok: every deployment drains"
