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
source=$1/deploy/systemd/upgrade-units
# limit LOOKS: the tested script waits so many seconds for a restart, and looks so often, each tenth of a second, at a unit that changes.
limit() {
    sed "s/^start_s=600 /start_s=$1 /; s/^\( *\)sleep 1\$/\1sleep 0.1/" "$source" >"$tested"
    [ "$(grep -c "^start_s=$1 " "$tested")" -eq 1 ] || fail "upgrade-units has no start_s=600 to replace"
    [ "$(grep -c '^ *sleep 0\.1$' "$tested")" -eq 1 ] || fail "upgrade-units has no sleep 1 to replace"
}
limit 1
chmod +x "$tested"

# The files that the programs read, beside units/UNIT, which has the process of UNIT (0: it is stopped):
#   path-UNIT     the states that it passes one after the other, one a line; a job for it is queued until it has passed them all
#   stays-UNIT    the state that it does not leave
#   stops-UNIT    it deactivates, then this becomes its units/UNIT
#   starts-UNIT   it activates, then it is active
#   loops-UNIT    it activates and is restarted for ever
#   fails-UNIT    its restart fails; failed-UNIT: it has failed earlier
#   hangs-UNIT    its restart does not end
#   stopped-UNIT  it is stopped during its restart
# program NAME TEXT: a shell script that the tested one finds.
program() { { echo '#!/bin/bash'; echo "work=$work"; cat; } >"$work/$1"; chmod +x "$work/$1"; }
program path/systemctl <<'TEXT'
printf '%s\n' "$*" >>"$work/calls"
unit=${*: -1}
case $1 in
list-units)
    for f in "$work/units"/*; do
        f=$(basename "$f")
        state=active
        [ ! -e "$work/stops-$f" ] || state=deactivating
        [ ! -e "$work/path-$f" ] || state=$(head -n 1 "$work/path-$f")
        [ ! -e "$work/failed-$f" ] || state=failed
        [[ $* != *--state=* || $* == *[=,]$state[,\ ]* ]] || continue
        [[ $f != $unit ]] || echo "$f loaded $state any"
    done
    ;;
show)
    case $3 in
    LoadState) cat "$work/load-state" ;;
    ActiveState) # has started or stopped when asked again
        if mv "$work/stops-$unit" "$work/units/$unit" 2>/dev/null; then
            echo deactivating
            exit
        fi
        if [ -s "$work/path-$unit" ]; then
            head -n 1 "$work/path-$unit"
            sed -i 1d "$work/path-$unit"
            exit
        fi
        rm -f "$work/path-$unit"
        if [ -e "$work/failed-$unit" ]; then
            echo failed
        elif [ -e "$work/stays-$unit" ]; then
            cat "$work/stays-$unit"
        elif [ -e "$work/loops-$unit" ] || rm "$work/starts-$unit" 2>/dev/null; then
            echo activating
        elif [ "$(cat "$work/units/$unit")" = 0 ]; then
            echo inactive
        else
            echo active
        fi
        ;;
    Job) [ -e "$work/path-$unit" ] && echo 5 || echo ;; # as systemctl: empty where there is none
    NRestarts) if [ -e "$work/loops-$unit" ]; then echo 3 >>"$work/loops-$unit"; awk '{ n += $1 } END { print n }' "$work/loops-$unit"; else echo 7; fi ;;
    *) cat "$work/units/$unit" ;;
    esac
    ;;
is-failed) [ -e "$work/fails-$unit" ] || [ -e "$work/failed-$unit" ] ;;
is-active) [ ! -e "$work/stopped-$unit" ] && [ "$(cat "$work/units/$unit")" != 0 ] ;;
restart | try-restart)
    [ ! -e "$work/stops-$unit" ] || exit 2
    if compgen -G "$work/starts-*" >/dev/null || compgen -G "$work/path-*" >/dev/null; then exit 2; fi # another one is down
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
name=$(basename "$MOED_RUN")
[ "$1" = upgrade ] && [ ! -e "$work/differs-$name" ] || { echo "moed: another layout" >&2; exit 1; }
[ ! -e "$work/path-moed-memd@$name.service" ] || { echo "moed: memd does not answer" >&2; exit 1; }
TEXT
echo 'int moed_test;' | cc -x c -shared -fPIC -o "$work/library.so" -
# unit NAME old|new|library: a unit whose process runs a program whose file is gone, or is there, or of which a library's file is gone.
unit() {
    local program=$work/program-$1 library=$work/$1/libmoed-cuda.so tries=0
    mkdir -p "$work/$1"
    cp "$(command -v sleep)" "$program"
    cp "$work/library.so" "$library"
    LD_PRELOAD=$library "$program" 1000 & pids+=($!)
    echo $! >"$work/units/$1"
    until grep -qsF "$library" "/proc/$!/maps"; do
        kill -0 $! 2>/dev/null || fail "the process of $1 has ended"
        [ $((tries += 1)) -lt 2000 ] || fail "the process of $1 has not loaded $library"
        sleep 0.01
    done
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

# passes UNIT STATE...
passes() { printf '%s\n' "${@:2}" >"$work/path-$1"; }

# A restart of memd: moed-http, which is old, is replaced after memd has started, and the workers start by themselves.
rm "$work"/units/*
for u in moed-memd@h moed-worker@h; do unit $u.service new; done
for u in moed-http@h moed-worker-2@h; do unit $u.service old; done
tee "$work/stops-moed-worker-2@h.service" <"$work/units/moed-worker@h.service" >/dev/null
restart_of_memd() {
    passes moed-memd@h.service deactivating inactive activating
    passes moed-worker@h.service inactive activating
    passes moed-worker-2@h.service inactive activating
}
limit 9
restart_of_memd
replaces moed-http@h.service 0
says "moed-worker-2@h.service runs the program that is installed"
limit 2
restart_of_memd
replaces "" 1
says "moed-memd@h.service has not started after 2 s"
touch "$work/fails-moed-memd@h.service"
restart_of_memd
limit 9
replaces "" 1
says "moed-memd@h.service does not start with its new program"

# While a worker is down between the halves of a restart, no other one is replaced. One that failed earlier does not matter.
rm "$work"/units/* "$work"/fails-* "$work"/path-*
for u in moed-memd@i moed-worker-3@i; do unit $u.service new; done
for u in moed-worker-2@i moed-worker@i moed-worker-4@i; do unit $u.service old; done
mv "$work/units/moed-worker-4@i.service" "$work/failed-moed-worker-4@i.service"
cp "$work/failed-moed-worker-4@i.service" "$work/units/moed-worker-4@i.service"
cp "$work/units/moed-worker-3@i.service" "$work/stops-moed-worker-2@i.service"
passes moed-worker-2@i.service inactive
passes moed-worker-3@i.service inactive activating
replaces moed-worker@i.service 0
says "moed-worker-2@i.service runs the program that is installed"
! grep -q "is stopped" "$work/said" || fail "it says of a unit that starts: $(cat "$work/said")"

# A process that neither starts nor ends, and one that does not stop.
limit 1
rm "$work"/units/*
unit moed-memd@j.service new
unit moed-worker-2@j.service new
unit moed-worker@j.service old
echo activating >"$work/stays-moed-worker-2@j.service"
replaces "" 1
says "moed-worker-2@j.service has not started after 1 s: journalctl -u moed-worker-2@j.service"
echo deactivating >"$work/stays-moed-worker-2@j.service"
replaces "" 1
says "moed-worker-2@j.service has not stopped after 1 s: journalctl -u moed-worker-2@j.service"
echo ok
