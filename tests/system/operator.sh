#!/bin/bash
# Several deployments as their operator handles them: which one is meant, what ps, logs and rm show of running and stopped ones.
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"
export XDG_RUNTIME_DIR=$WORK
unset MOED_RUN
FIRST=first$$ SECOND=second$$ HAND=by-hand$$ # moed ps lists deployments of other folders too
end_all() {
    status=$?
    trap - EXIT
    set +e
    for name in $FIRST $SECOND small; do MOED_RUN='' "$MOED" down $name >/dev/null 2>&1; done
    RUN=$WORK/moed/$FIRST
    (exit $status)
    end
}
trap end_all EXIT
code() { set +e; "$@" >"$WORK/out" 2>"$WORK/err" </dev/null; CODE=$?; set -e; }

say "without a deployment"
code "$MOED" run -n 1 x
[ $CODE -eq 3 ] && grep -q 'moed up' "$WORK/err" || fail "run without a deployment: $CODE $(cat "$WORK/err")"
code "$MOED" chat
[ $CODE -eq 3 ] && grep -q 'moed up' "$WORK/err" || fail "chat without a deployment: $CODE $(cat "$WORK/err")"

say "Ctrl-C while it starts: each process ends when it is asked to, also in the middle of measuring"
"$MOED" up "$MODEL" --name $FIRST --device emu:vram=30%,link=100K >/dev/null 2>"$WORK/err" & up=$!
wait_until 20 test -e "$WORK/moed/$FIRST/worker.pid" || fail "no worker starts: $(cat "$WORK/err")"
kill -INT $up
set +e; wait $up; CODE=$?; set -e
[ $CODE -eq 130 ] && ! grep 'killing it' "$WORK/moed/$FIRST/supervise.log" || fail "Ctrl-C while starting: $CODE $(cat "$WORK/err")"

say "one deployment: no command needs its name"
# Where this machine has no driver of NVIDIA: the bus shows a GPU, so a line says why the host computes.
with_gpu=()
mkdir -p "$WORK/pci/0000:65:00.0"
echo 0x10de > "$WORK/pci/0000:65:00.0/vendor"
echo 0x030200 > "$WORK/pci/0000:65:00.0/class"
if [ ! -e /proc/driver/nvidia/version ] && [ ! -e /dev/nvidiactl ] && unshare -m mount --bind "$WORK/pci" /sys/bus/pci/devices 2> /dev/null; then
    with_gpu=(env MOED_DEVICE='' unshare -m sh -c 'mount --bind "$0" /sys/bus/pci/devices && exec "$@"' "$WORK/pci")
fi
"${with_gpu[@]}" "$MOED" up "$MODEL" --ctx 1024 --name $FIRST >"$WORK/out" 2>"$WORK/err" || fail "up"
grep -q "\`moed chat --name $FIRST\`; one answer: \`moed run --chat --name $FIRST \"PROMPT\"\`" "$WORK/out" || fail "up --name: $(cat "$WORK/out")"
[ ${#with_gpu[@]} -eq 0 ] || [ "$(grep -c 'uses the host: .*NVIDIA.*driver is not installed' "$WORK/err")" = 1 ] || fail "up beside a GPU without a driver: $(cat "$WORK/err")"
grep -q -- '--ctx 1024 is more than the 512 tokens that the model was trained on' "$WORK/err" || fail "up --ctx 1024: $(cat "$WORK/err")"
"$MOED" run -n 2 x > "$WORK/out" && "$MOED" tokenize x > /dev/null && "$MOED" map > /dev/null && "$MOED" logs worker > /dev/null || fail "the only deployment is not taken"
"$MOED" run -n 2 --temp 0 --ignore-end --stats x > "$WORK/out" 2>&1
[ "$(wc -l < "$WORK/out")" -ge 2 ] && [ "$(head -n 1 "$WORK/out")" = "$("$MOED" run -n 2 --temp 0 --ignore-end x)" ] || fail "statistics stick to the answer: $(cat "$WORK/out")"
# --name beats MOED_RUN, also where it names a deployment that does not run.
mkdir -m 700 "$WORK/other"
MOED_RUN=$WORK/other "$MOED" run -n 2 --name $FIRST x > "$WORK/out" || fail "MOED_RUN beats --name"
code env MOED_RUN="$WORK/moed/$FIRST" "$MOED" run --name nobody x
[ $CODE -eq 3 ] || fail "--name of none with MOED_RUN: $CODE $(cat "$WORK/err")"
code "$MOED" run "$FIRST" hello
[ $CODE -eq 2 ] && grep -q "'$FIRST' is a deployment: .moed run --name $FIRST PROMPT" "$WORK/err" || fail "run NAME PROMPT: $CODE $(cat "$WORK/err")"

# Stopping is not harmless: `moed down` without a name takes `default` alone, and names what runs.
code "$MOED" down
[ $CODE -eq 3 ] && grep -q "default is not running, but $FIRST is: \`moed down $FIRST\` stops it" "$WORK/err" || fail "down without a name: $CODE $(cat "$WORK/err")"
"$MOED" run -n 2 x > "$WORK/out" || fail "down without a name stops the only one"

say "logs: time first, since, JSON, what ended a killed process"
kill -9 "$(tr -dc 0-9 < "$WORK/moed/$FIRST/worker.pid")"
wait_until 10 "$MOED" run -n 1 x || fail "no answer after the worker died"
"$MOED" logs --name $FIRST > "$WORK/logs"
grep -qE '^20[0-9-]+T[0-9:.]+Z warn supervise worker has ended, killed by signal 9 \(Killed\); starting it again' "$WORK/logs" || fail "logs: $(cat "$WORK/logs")"
LC_ALL=C sort -c -s -k1,1 "$WORK/logs" || fail "the logs are not in order"
[ "$("$MOED" logs --since 1d --name $FIRST | wc -l)" = "$(wc -l < "$WORK/logs")" ] && [ -z "$("$MOED" logs --since 2999-01-01 --name $FIRST)" ] || fail "logs --since"
code "$MOED" logs --since tomorrow --name $FIRST
[ $CODE -eq 2 ] && grep -q 'expected 90s' "$WORK/err" || fail "logs --since tomorrow: $CODE"
"$MOED" logs -n 3 --json worker --name $FIRST | grep -cE '^\{"time":"20[^"]*Z","level":"info","component":"worker","message":"[^"]*"\}$' | grep -qx 3 || fail "logs --json: $("$MOED" logs -n 3 --json worker --name $FIRST)"

say "two deployments"
MOED_RUN=$WORK/other start_deployment "$MODEL" --ctx 256 --name $SECOND
[ -e "$WORK/moed/$SECOND/worker.pid" ] && [ -z "$(ls "$WORK/other")" ] || fail "up --name with MOED_RUN"
for verb in "run x" chat "top --once" "tokenize x" map "restart worker"; do
    # shellcheck disable=SC2086 # words
    code "$MOED" $verb
    [ $CODE -eq 2 ] && grep -q "$FIRST, $SECOND; choose" "$WORK/err" || fail "moed $verb of two: $CODE $(cat "$WORK/err")"
done
code "$MOED" down
[ $CODE -eq 3 ] && grep -q "$FIRST, $SECOND; choose" "$WORK/err" || fail "down of two: $CODE $(cat "$WORK/err")"

"$MOED" down $SECOND > /dev/null || fail "down"
"$MOED" run -n 2 x > "$WORK/out" || fail "the only one again"

say "a configuration file"
mkdir -p "$XDG_CONFIG_HOME/moed"
printf 'model = %s # of the second\nctx = 300\nparallel = 2\n' "$MODEL" > "$XDG_CONFIG_HOME/moed/$SECOND.conf"
"$MOED" up --name $SECOND --parallel 1 >/dev/null 2>"$WORK/err" || fail "up with a file: $(cat "$WORK/err")"
grep -q "options from $XDG_CONFIG_HOME/moed/$SECOND.conf" "$WORK/err" || fail "up does not name the file: $(cat "$WORK/err")"
"$MOED" ps --name $SECOND --json | grep -q 'requests of 300 tokens' || fail "the file's options: $("$MOED" ps --name $SECOND --json)"
"$MOED" ps --name $SECOND --json | grep -q ' 1 requests of' || fail "a flag does not win against the file"
"$MOED" down $SECOND > /dev/null
echo 'ctxt = 3' >> "$XDG_CONFIG_HOME/moed/$SECOND.conf"
code "$MOED" up --name $SECOND
[ $CODE -eq 2 ] && grep -q "$SECOND.conf:4: there is no option ctxt; did you mean --ctx?" "$WORK/err" || fail "a wrong file: $CODE $(cat "$WORK/err")"
code "$MOED" up --name $FIRST
[ $CODE -eq 2 ] && grep -q 'MODEL is missing' "$WORK/err" || fail "up without a model: $CODE $(cat "$WORK/err")"

say "stopped deployments"
"$MOED" ps --name $SECOND > "$WORK/out" 2>&1 && fail "ps lists a stopped deployment"
"$MOED" ps -a --name $SECOND | grep -qE "^$SECOND +supervise +- +stopped" || fail "ps -a: $("$MOED" ps -a)"
code "$MOED" rm $FIRST
[ $CODE -eq 1 ] && grep -q "moed down $FIRST" "$WORK/err" || fail "rm of a running deployment: $CODE $(cat "$WORK/err")"
touch "$WORK/moed/$SECOND/note"
code "$MOED" rm $SECOND
[ $CODE -eq 1 ] && grep -q "not moed.s, note" "$WORK/err" && [ -e "$WORK/moed/$SECOND/supervise.log" ] && [ -e "$WORK/moed/$SECOND/note" ] && rm "$WORK/moed/$SECOND/note" || fail "rm removes a foreign file"
"$MOED" rm $SECOND > /dev/null && [ ! -e "$WORK/moed/$SECOND" ] || fail "rm"
code "$MOED" rm $SECOND
[ $CODE -eq 3 ] || fail "rm of what is not there: $CODE"

say "docs/weights-layout.md: the offsets of its example"
page=$(dirname "$0")/../../docs/weights-layout.md
read -ra make <<< "$(sed -n 's/^    moed \(mkmodel .*\)/\1/p' "$page")"
(cd "$WORK" && "$MOED" "${make[@]}" > /dev/null) || fail "mkmodel of the page: ${make[*]}"
start_deployment "$WORK/small.gguf" --name small
"$MOED" map --name small > "$WORK/map"
"$MOED" down small > /dev/null
# Offset, bytes and name of each row with a name; then the bytes of the pool and the byte that the page computes.
of_page() {
    sed 's/\([0-9]\),\([0-9]\)/\1\2/g' "$page" > "$WORK/page"
    awk -F'|' '$2 ~ /^ [0-9]+ $/ && $4 ~ /^ `/ { n = split($3, by, "x"); split($4, name, "`"); print $2 + 0, n == 2 ? by[1] * by[2] : by[1] + 0, name[2] }' "$WORK/page"
    sed -nE 's/^The pool has ([0-9]+) bytes.*/pool \1/p; s/^ .*-> byte ([0-9]+),.*/byte \1/p' "$WORK/page"
}
of_map() {
    awk -v names="$(of_page)" 'BEGIN { n = split(names, word, "[ \n]"); for (i = 1; i <= n; i++) named[word[i]] = 1 }
        $7 in named { print $1, $2, $7 }
        $7 == "blk.0.experts" { byte = $1 + 3 * $2 / 8 + 73728 + 2 * 2304 + 256 + 6 * 256 + 64 + 4 * 5 }
        END { print "pool", $1 + $2; print "byte", byte }' "$WORK/map"
}
[ "$(of_page | wc -l)" = 8 ] && [ "$(of_page)" = "$(of_map)" ] || fail "the page's example is not what moed map prints: $(diff <(of_page) <(of_map) || true)"

say "daemons that a person started"
BIN=$(dirname "$MOED")/..
"$BIN/memd/moed-memd" --run "$WORK/$HAND" --model "$MODEL" 2> "$WORK/memd.txt" & memd=$!
by_hand() { "$MOED" ps --name $HAND 2>"$WORK/err" | grep -qE "^$HAND +memd +[0-9]+ ready"; }
wait_until 10 by_hand || fail "ps does not find memd: $("$MOED" ps)"
grep -q "$HAND: started with --run; select it with MOED_RUN=$WORK/$HAND" "$WORK/err" || fail "ps: $(cat "$WORK/err")"
MOED_RUN=$WORK/$HAND "$MOED" logs memd | grep -q 'ready after' || fail "logs do not find its file"
kill $memd
wait $memd || fail "memd by hand: exit code $?"
say "ok"
