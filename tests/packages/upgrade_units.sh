#!/bin/bash
# deploy/systemd/upgrade-units with programs of this script in the place of systemctl, journalctl, runuser and moed: it restarts what runs
# a program or a library whose file is gone, in order, and nothing of a deployment whose memd does not fit; it waits no longer than it is
# told to. tests/packages/run has it under a real systemd.
# usage: upgrade_units.sh SOURCE
set -eu
fail() { echo "FAILED: $*" >&2; exit 1; }
work=$(mktemp -d)
pids=()
end() { [ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true; rm -rf "$work"; }
trap end EXIT
mkdir -p "$work/libexec/moed" "$work/bin" "$work/path" "$work/units"
tested=$work/libexec/moed/upgrade-units
# A start that hangs takes the test a second, and each look at a unit a tenth.
sed 's/^start_s=600 /start_s=1 /; s/^\( *\)sleep 1$/\1sleep 0.1/' "$1/deploy/systemd/upgrade-units" >"$tested"
! cmp -s "$1/deploy/systemd/upgrade-units" "$tested" || fail "upgrade-units has no start_s"
chmod +x "$tested"

# program NAME TEXT: a shell script that the tested one finds.
program() { { echo '#!/bin/bash'; echo "work=$work"; cat; } >"$work/$1"; chmod +x "$work/$1"; }
program path/systemctl <<'TEXT'
printf '%s\n' "$*" >>"$work/calls"
unit=${*: -1}
case $1 in
list-units)
    for f in "$work/units"/*; do
        f=$(basename "$f")
        [ ! -e "$work/stops-$f" ] || [[ $* == *deactivating* ]] || continue
        [[ $f != $unit ]] || echo "$f loaded active running"
    done
    ;;
show)
    case $3 in
    LoadState) cat "$work/load-state" ;;
    ActiveState) # has started or stopped when asked again
        if [ -e "$work/loops-$unit" ] || rm "$work/starts-$unit" 2>/dev/null; then
            echo activating
        elif mv "$work/stops-$unit" "$work/units/$unit" 2>/dev/null; then
            echo deactivating
        elif [ "$(cat "$work/units/$unit")" = 0 ]; then
            echo inactive
        else
            echo active
        fi
        ;;
    NRestarts) if [ -e "$work/loops-$unit" ]; then echo 3 >>"$work/loops-$unit"; awk '{ n += $1 } END { print n }' "$work/loops-$unit"; else echo 7; fi ;;
    *) cat "$work/units/$unit" ;;
    esac
    ;;
is-failed) [ -e "$work/fails-$unit" ] ;;
is-active) [ ! -e "$work/stopped-$unit" ] && [ "$(cat "$work/units/$unit")" != 0 ] ;;
restart | try-restart)
    [ ! -e "$work/stops-$unit" ] || exit 2
    if compgen -G "$work/starts-*" >/dev/null; then exit 2; fi
    [ "$*" != "restart --no-block moed-upgrade.service" ] || exit 0
    [ ! -e "$work/hangs-$unit" ] || sleep 1000
    [ ! -e "$work/fails-$unit" ] || exit 1
    [ "$unit" != moed-upgrade.service ] || exec "$work/libexec/moed/upgrade-units" >"$work/journal" 2>&1
    ;;
esac
TEXT
program path/journalctl <<'TEXT'
[ "$1" = --sync ] || cat "$work/journal"
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
echo 'int moed_test;' | cc -x c -shared -fPIC -o "$work/library.so" -
# unit NAME old|new|library: a unit whose process runs a program whose file is gone, or is there, or of which a library's file is gone.
unit() {
    local program=$work/program-$1 library=$work/$1/libmoed-cuda.so
    mkdir -p "$work/$1"
    cp "$(command -v sleep)" "$program"
    cp "$work/library.so" "$library"
    LD_PRELOAD=$library "$program" 1000 & pids+=($!)
    echo $! >"$work/units/$1"
    until grep -qF "$library" "/proc/$!/maps"; do sleep 0.01; done
    case $2 in old) rm "$program" ;; library) rm "$library" ;; esac
}
# replaces WANTED CODE ARGUMENTS...: what one run restarts; its output is in said.
replaces() {
    local wanted=$1 want_code=$2 code=0 restarted
    shift 2
    : >"$work/calls"
    PATH=$work/path:$PATH "$tested" "$@" >"$work/said" 2>&1 || code=$?
    restarted=$(sed -n 's/^try-restart //p' "$work/calls" | paste -s -d' ')
    [ "$restarted" = "$wanted" ] && [ $code -eq "$want_code" ] || fail "exit code $code, restarts '$restarted' instead of '$wanted': $(cat "$work/said")"
}
says() { grep -qF -- "$1" "$work/said" || fail "it does not say '$1': $(cat "$work/said")"; }

replaces "" 0
for u in moed-memd@a moed-worker@a moed-worker-2@a moed-http@a moed-memd@b-c moed-worker@b-c moed-worker@gone; do unit $u.service old; done
for u in moed-cpuexec@a moed-http@b-c; do unit $u.service new; done
touch "$work/differs-b-c"
replaces "moed-worker-2@a.service moed-worker@a.service moed-http@a.service" 1
says "another layout"
rm "$work/differs-b-c"

echo loaded >"$work/load-state"
replaces "moed-worker-2@a.service moed-worker@a.service moed-http@a.service moed-worker@b-c.service" 0 --wait 60
says "moed-http@a.service runs the program that is installed"

touch "$work/fails-moed-worker-2@a.service"
replaces "moed-worker-2@a.service moed-worker@b-c.service" 1 --wait 60
says "moed-worker-2@a.service does not start with its new program: journalctl -u moed-worker-2@a.service"
mv "$work/fails-moed-worker-2@a.service" "$work/hangs-moed-worker-2@a.service"
replaces "moed-worker-2@a.service moed-worker@b-c.service" 1
says "moed-worker-2@a.service has not started after 1 s: journalctl -u moed-worker-2@a.service"

# Whoever waits for the service does not wait for what hangs.
echo "of the service" >"$work/journal"
touch "$work/hangs-moed-upgrade.service"
replaces "" 0 --wait 1
says "of the service"
says "goes on by itself: journalctl -f -u moed-upgrade.service"
replaces "" 0 --wait 0
says "goes on by itself: journalctl -f -u moed-upgrade.service"
echo masked >"$work/load-state"
replaces "" 0 --wait 60
says "moed-upgrade.service is masked"
for arguments in "--wait" "--wait x" "--wait 1 2" "x"; do
    # shellcheck disable=SC2086 # several words
    replaces "" 2 $arguments
    says "usage: upgrade-units"
done

# A library alone; names with what systemd makes of a dash; a name that ends as another does.
rm "$work"/units/* "$work"/hangs-*
cd "$work/units" # where a name taken as a pattern would match files
unit 'moed-memd@a\x2db.service' new
unit 'moed-worker@a\x2db.service' library
unit 'moed-http@a\x2db.service' new
unit 'moed-worker@ax2db.service' old
unit 'moed-memd@b.service' new
unit 'moed-worker@b.service' old
unit 'moed-worker@a@b.service' old
replaces 'moed-worker@a\x2db.service moed-worker@b.service' 0
says "'moed-worker@a\\x2db.service' runs the program"
touch "$work/stopped-moed-worker@a\\x2db.service"
replaces 'moed-worker@a\x2db.service moed-worker@b.service' 0
says "'moed-worker@a\\x2db.service' is stopped"
rm "$work"/stopped-*
touch "$work/fails-moed-worker@a\\x2db.service"
replaces 'moed-worker@a\x2db.service moed-worker@b.service' 1
says "journalctl -u 'moed-worker@a\\x2db.service'"

# A worker that an upgrade of before has restarted has started before the next one is replaced.
rm "$work"/units/* "$work"/fails-*
unit moed-memd@c.service new
unit moed-worker-2@c.service new
unit moed-worker@c.service old
touch "$work/starts-moed-worker-2@c.service"
replaces moed-worker@c.service 0
touch "$work/fails-moed-worker-2@c.service"
replaces "" 1
says "moed-worker-2@c.service does not start with its new program"

# A unit in a restart loop is not waited for, but for its deployment no more is replaced. moed-http's restarts do not matter to others.
rm "$work"/units/* "$work"/fails-*
for u in moed-memd@d moed-worker-2@d moed-memd@e moed-http@e; do unit $u.service new; done
for u in moed-worker@d moed-worker@e; do unit $u.service old; done
touch "$work/loops-moed-worker-2@d.service" "$work/loops-moed-http@e.service"
replaces moed-worker@e.service 1
says "moed-worker-2@d.service ends and is restarted again and again: journalctl -u moed-worker-2@d.service"

# Units that stop are seen: after its stop one has started again with the new program, one stays stopped, one was left by its memd.
rm "$work"/units/* "$work"/loops-*
for u in moed-memd@f moed-memd@g; do unit $u.service new; done
for u in moed-worker-2@f moed-worker-3@f moed-worker@f moed-worker@g; do unit $u.service old; done
tee "$work/stops-moed-memd@f.service" <"$work/units/moed-memd@f.service" >"$work/stops-moed-worker-2@f.service"
echo 0 | tee "$work/stops-moed-memd@g.service" >"$work/stops-moed-worker-3@f.service"
replaces moed-worker@f.service 0
says "moed-worker-2@f.service runs the program that is installed"
says "moed-worker-3@f.service is stopped"
echo ok
