#!/bin/bash
# `moed upgrade`: new programs replace those that run, while memd keeps the model and a stream goes on. Programs of a build whose shared
# memory differs replace nothing, unless memd may be replaced too; a worker of such a build does not start. A new GPU module (tests/cusim)
# replaces the processes that have loaded it.
#   upgrade.sh CMAKE BUILD MODEL OTHER-MOED OTHER-WORKER [MODULE]
CMAKE=$1 BUILD=$2 MODEL=$3 OTHER_MOED=$4 OTHER_WORKER=$5 MODULE=${6:-}
MOED=$BUILD/client/moed
. "$(dirname "$0")/../deployment.sh"
"$CMAKE" --install "$BUILD" --prefix "$WORK/prefix" > "$WORK/install.log" 2>&1 || fail "cmake --install: $(tail -n 3 "$WORK/install.log")"
BIN=$WORK/prefix/bin
MOED=$BIN/moed

# install_anew PROGRAM [FROM]: as a package does it, by another file of the same name.
install_anew() {
    cp "${2:-$BIN/$1}" "$BIN/$1.new"
    mv "$BIN/$1.new" "$BIN/$1"
}
upgrade() { "$MOED" upgrade "$@" > "$WORK/upgrade" 2>&1 || fail "upgrade $*: $(cat "$WORK/upgrade")"; }
pids() { for process in "$@"; do pid_of "$process"; echo; done; }
answer() { "$MOED" run -n 40 --ignore-end --temp 0 "Once upon a time"; }

start_deployment "$MODEL" --workers 2 --cpuexec --http 127.0.0.1:0
answer > "$WORK/want"

say "nothing is new"
before=$(pids memd cpuexec worker worker-2 http)
upgrade
grep -q "every process runs the program that is installed" "$WORK/upgrade" || fail "upgrade says: $(cat "$WORK/upgrade")"
[ "$(pids memd cpuexec worker worker-2 http)" = "$before" ] || fail "upgrade has replaced a process"

say "the moed of another installation says so, and replaces nothing"
code=0
"$BUILD/client/moed" upgrade > "$WORK/upgrade" 2>&1 || code=$?
[ $code -eq 1 ] && grep -qF "runs the programs of $(realpath "$BIN"), but this moed is that of " "$WORK/upgrade" || fail "exit code $code: $(cat "$WORK/upgrade")"
[ "$(pids memd cpuexec worker worker-2 http)" = "$before" ] || fail "it has replaced a process"

say "new workers: memd stays, and a stream goes on"
"$MOED" run -n 3000 --ignore-end --temp 0 "Once upon a time" > "$WORK/long-want"
memd=$(pid_of memd) others=$(pids memd cpuexec http) worker=$(pid_of worker) second=$(pid_of worker-2)
install_anew moed-worker
"$MOED" run -n 3000 --ignore-end --temp 0 "Once upon a time" > "$WORK/long" & asking=$!
upgrade
grep -q "^worker is ready" "$WORK/upgrade" && grep -q "^worker-2 is ready" "$WORK/upgrade" || fail "upgrade says: $(cat "$WORK/upgrade")"
wait $asking || fail "the stream"
cmp -s "$WORK/long" "$WORK/long-want" || fail "the stream's text is another"
[ "$(pids memd cpuexec http)" = "$others" ] || fail "a process without a new program was replaced"
[ "$(pid_of worker)" != "$worker" ] && [ "$(pid_of worker-2)" != "$second" ] || fail "a worker was not replaced"
[ "$(answer)" = "$(cat "$WORK/want")" ] || fail "another answer after the upgrade"

say "all programs are new: memd keeps the model, until --reload"
for program in moed-memd moed-cpuexec moed-worker moed-http; do install_anew $program; done
upgrade
grep -q "memd keeps the model" "$WORK/upgrade" || fail "upgrade says: $(cat "$WORK/upgrade")"
[ "$(pid_of memd)" = "$memd" ] || fail "memd was replaced"
upgrade --reload
[ "$(pid_of memd)" != "$memd" ] || fail "memd was not replaced"
[ "$(answer)" = "$(cat "$WORK/want")" ] || fail "another answer after --reload"
upgrade
grep -q "every process runs" "$WORK/upgrade" || fail "upgrade says: $(cat "$WORK/upgrade")"

say "a build whose shared memory differs replaces nothing"
before=$(pids memd cpuexec worker worker-2 http)
install_anew moed-worker "$OTHER_WORKER"
install_anew moed "$OTHER_MOED"
code=0
"$MOED" upgrade > "$WORK/upgrade" 2>&1 || code=$?
[ $code -eq 1 ] && grep -qE "host pool [0-9]+ \(here [0-9]+\).*nothing was replaced" "$WORK/upgrade" && [ "$(wc -l < "$WORK/upgrade")" -eq 1 ] ||
    fail "exit code $code: $(cat "$WORK/upgrade")"
[ "$(pids memd cpuexec worker worker-2 http)" = "$before" ] || fail "it has replaced a process"

say "a worker of such a build does not start, and the other serves"
"$BUILD/client/moed" restart worker > "$WORK/restart" 2>&1 && fail "it is ready"
grep -qE "memd is of another build, whose shared memory differs: host pool" "$RUN/worker.log" || fail "the worker's log: $(tail -n 3 "$RUN/worker.log")"
[ "$(answer)" = "$(cat "$WORK/want")" ] || fail "another answer from the other worker"
install_anew moed-worker "$BUILD/worker/moed-worker"
install_anew moed "$BUILD/client/moed"

say "a new GPU module: what has loaded it is replaced, and memd by --reload"
[ -e "$MODULE" ] || { say "no module: not tried"; exit; }
"$MOED" down > /dev/null
export MOED_CUDA_MODULE=$WORK/libmoed-cuda.so
cp "$MODULE" "$MOED_CUDA_MODULE"
start_deployment "$MODEL" --device cuda:0,vram=30% --workers 2 --http 127.0.0.1:0
answer > "$WORK/want"
before=$(pids memd cpuexec worker worker-2 http)
upgrade
grep -q "every process runs the program that is installed" "$WORK/upgrade" || fail "upgrade says: $(cat "$WORK/upgrade")"
mv "$MOED_CUDA_MODULE" "$MOED_CUDA_MODULE.old" # the processes keep it, under this name
upgrade
[ "$(pids memd cpuexec worker worker-2 http)" = "$before" ] || fail "upgrade has replaced a process"
memd=$(pid_of memd) others=$(pids cpuexec http) worker=$(pid_of worker) second=$(pid_of worker-2)
cp "$MODULE" "$MOED_CUDA_MODULE"
upgrade
grep -q "memd keeps the model" "$WORK/upgrade" || fail "upgrade says: $(cat "$WORK/upgrade")"
[ "$(pid_of worker)" != "$worker" ] && [ "$(pid_of worker-2)" != "$second" ] || fail "a worker was not replaced: $(cat "$WORK/upgrade")"
[ "$(pid_of memd)" = "$memd" ] && [ "$(pids cpuexec http)" = "$others" ] || fail "a process without a new module was replaced"
[ "$(answer)" = "$(cat "$WORK/want")" ] || fail "another answer after the upgrade"
upgrade --reload
[ "$(pid_of memd)" != "$memd" ] || fail "memd was not replaced"
[ "$(answer)" = "$(cat "$WORK/want")" ] || fail "another answer after --reload"
before=$(pids memd cpuexec worker worker-2 http)
upgrade
grep -q "every process runs" "$WORK/upgrade" || fail "upgrade says: $(cat "$WORK/upgrade")"
[ "$(pids memd cpuexec worker worker-2 http)" = "$before" ] || fail "upgrade has replaced a process"
