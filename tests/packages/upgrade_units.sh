#!/bin/bash
# deploy/systemd/upgrade-units with programs of this script in the place of systemctl and moed: it restarts what runs a program whose file
# is gone, in order, and nothing of a deployment whose memd does not fit. tests/packages/run has it under a real systemd.
# usage: upgrade_units.sh SOURCE
set -eu
fail() { echo "FAILED: $*" >&2; exit 1; }
work=$(mktemp -d)
pids=()
end() { [ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true; rm -rf "$work"; }
trap end EXIT
mkdir -p "$work/libexec/moed" "$work/bin" "$work/path" "$work/units"
cp "$1/deploy/systemd/upgrade-units" "$work/libexec/moed"

# program NAME TEXT: a shell script that the tested one finds.
program() { { echo '#!/bin/bash'; echo "work=$work"; cat; } >"$work/$1"; chmod +x "$work/$1"; }
program path/systemctl <<'TEXT'
echo "$*" >>"$work/calls"
case $1 in
list-units) pattern=${*: -1}; for f in "$work/units"/*; do [[ $(basename "$f") != $pattern ]] || echo "$(basename "$f") loaded active running"; done ;;
show) cat "$work/units/${*: -1}" ;;
restart) [ ! -e "$work/fails-$2" ] ;;
esac
TEXT
program path/runuser <<'TEXT'
[ "$1 $2 $3" = "-u somebody --" ] || exit 9
shift 3
"$@"
TEXT
program path/stat <<'TEXT'
echo somebody
TEXT
program bin/moed <<'TEXT'
[ "$1" = upgrade ] && [ ! -e "$work/differs-$(basename "$MOED_RUN")" ] || { echo "moed: another layout" >&2; exit 1; }
TEXT
# unit NAME old|new: a unit whose process runs a program whose file is gone, or is there.
unit() {
    cp "$(command -v sleep)" "$work/program-$1"
    "$work/program-$1" 1000 & pids+=($!)
    echo $! >"$work/units/$1"
    until [ "$(readlink "/proc/$!/exe")" = "$work/program-$1" ]; do sleep 0.01; done
    [ "$2" = new ] || rm "$work/program-$1"
}
# restarts WANTED CODE: what one run restarts.
restarts() {
    local code=0
    : >"$work/calls"
    PATH=$work/path:$PATH "$work/libexec/moed/upgrade-units" >"$work/said" 2>&1 || code=$?
    [ "$(sed -n 's/^restart //p' "$work/calls" | xargs)" = "$1" ] && [ $code -eq "$2" ] ||
        fail "exit code $code, restarts '$(sed -n 's/^restart //p' "$work/calls" | xargs)' instead of '$1': $(cat "$work/said")"
}

restarts "" 0
for u in moed-memd@a moed-worker@a moed-worker-2@a moed-http@a moed-memd@b-c moed-worker@b-c moed-worker@gone; do unit $u.service old; done
for u in moed-cpuexec@a moed-http@b-c; do unit $u.service new; done
touch "$work/differs-b-c"
restarts "moed-worker-2@a.service moed-worker@a.service moed-http@a.service" 1
grep -q "another layout" "$work/said" || fail "it does not say why: $(cat "$work/said")"
rm "$work/differs-b-c"
touch "$work/fails-moed-worker-2@a.service"
restarts "moed-worker-2@a.service moed-worker@b-c.service" 1
grep -q "journalctl -u moed-worker-2@a.service" "$work/said" || fail "it does not say where to look: $(cat "$work/said")"
echo ok
