#!/bin/bash
# The units of deploy/systemd: systemd finds nothing wrong in them, and they start after what they need. usage: units.sh SOURCE
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }
for file in "$1"/deploy/systemd/*.in; do
    # Any program: those of the units are not installed here.
    sed -E 's|@CMAKE_INSTALL_FULL_[A-Z]+DIR@/[^ ]*|/bin/true|; s|@worker_[a-z]+@||g' "$file" >"$work/$(basename "$file" .in)"
done
# after UNIT OTHER
after() { grep -E '^After=' "$work/$1" | grep -qw -- "$2" || fail "$1 does not start after $2"; }
after moed-memd@.service remote-fs.target
after moed-http@.service network-online.target
grep -qx 'Wants=network-online.target' "$work/moed-http@.service" || fail "moed-http@ does not want the network"
number() { sed -n "s/^$1=//p" "$work/moed-http@.service"; }
[ $(($(number RestartSec) * $(number StartLimitBurst))) -ge 60 ] || fail "systemd gives moed-http up within a minute"
command -v systemd-analyze >/dev/null || { echo "skipped: systemd-analyze is not here" >&2; exit 77; }
code=0
SYSTEMD_UNIT_PATH=$work:/usr/lib/systemd/system:/lib/systemd/system timeout 60 systemd-analyze verify --man=no "$work"/moed-{http,memd,worker,cpuexec}@x.service "$work/moed@x.target" >"$work/out" 2>&1 || code=$?
[ $code -eq 0 ] && ! grep -q 'moed.*Unknown\|moed.*ignoring' "$work/out" || fail "systemd-analyze verify: $code $(cat "$work/out")"
echo "ok: the units"
