#!/bin/bash
# Measures how the two processes of a deployment share a CUDA device: memd copies and the worker computes. A quarter of the experts is
# resident and every missing one is loaded. The output is decode speed and the time waited for loads, in turns: as usual, without
# flags (MOED_DEVICE_FLAGS=0: no stream waits for another process), and with NVIDIA's MPS, where that is installed and starts. The
# script fails at its end unless every answer had the tokens of --device host.
#   cuda_mps.sh MOED MODEL [-d DEVICE] [-r RUNS] [-n TOKENS]
# On the simulated device a stand-in replaces NVIDIA's program, and the script prints no speed.
MOED=$1 MODEL=$2
shift 2
DEVICE=cuda:0 RUNS=3 TOKENS=64 ASK_SECONDS=60
while getopts d:r:n: option; do
    case $option in
    d) DEVICE=$OPTARG ;; r) RUNS=$OPTARG ;; n) TOKENS=$OPTARG ;;
    *) exit 2 ;;
    esac
done
. "$(dirname "$0")/../tests/deployment.sh"
. "$(dirname "$0")/decode_figures.sh"
if [ $SIMULATED = yes ]; then
    mkdir "$WORK/bin"
    printf '#!/bin/sh\n[ "$1" = -d ] || cat >/dev/null\n' >"$WORK/bin/nvidia-cuda-mps-control"
    chmod +x "$WORK/bin/nvidia-cuda-mps-control"
    export PATH=$WORK/bin:$PATH
fi
KINDS="without no-flags" MPS="nvidia-cuda-mps-control is not installed"
! command -v nvidia-cuda-mps-control >/dev/null || KINDS="$KINDS with" MPS=
shown() { [ $SIMULATED = no ] && printf '%s' "$1" || printf 'ran'; }
waited() { metric worker moed_worker_load_wait_seconds_total; }
# measure NAME OPTION...: "tokens/s share" a run into NAME.figures; share: of the time, per cent waited for loads. Sets MPS to the
# reason if MPS does not start.
measure() {
    local name=$1 before rate
    shift
    "$MOED" up "$MODEL" --speculate off --ctx 512 --device "$DEVICE,vram=25%" --policy ondemand --assign load-all "$@" >/dev/null 2>"$WORK/up" ||
        { cat "$WORK/up" >&2; fail "up $*"; }
    if [ "$name" = with ] && ! grep -q "MPS started" "$RUN/supervise.log"; then
        MPS=$(grep 'no MPS' "$RUN/supervise.log" | tail -n 1)
        MPS=${MPS:-MPS does not start}
        "$MOED" down >/dev/null 2>&1
        rm -f "$RUN"/*.log
        return
    fi
    prompts=("Another prompt, to warm up")
    ask_all "$TOKENS" warm
    prompts=("Once upon a time")
    before=$(waited)
    ask_all "$TOKENS" got
    same got want "$name"
    [ "$(metric worker 'moed_worker_segments_total{where="loaded"}')" -gt 0 ] || fail "no segment was loaded, so nothing was measured"
    rate=$(number tokens_per_s)
    awk -v r="$rate" -v n="$TOKENS" -v a="$before" -v b="$(waited)" \
        'BEGIN { printf "%s %.1f\n", r, (r > 0 ? 100 * (b - a) * r / n : 0) }' >>"$WORK/$name.figures"
    "$MOED" down >/dev/null 2>&1
    rm -f "$RUN"/*.log
}
"$MOED" up "$MODEL" --speculate off --ctx 512 --device host --reproducible >/dev/null 2>&1 || fail "up --device host"
# shellcheck disable=SC2034 # ask_all's
prompts=("Once upon a time")
ask_all "$TOKENS" want
"$MOED" down >/dev/null 2>&1
line() { echo "$(shown "$(median "$WORK/$1.figures" 1)") tokens/s ($(shown "$(median "$WORK/$1.figures" 2)") % waited for loads)"; }
all() {
    echo "25 % resident, the rest loaded: $(line without), without flags $(line no-flags)," \
        "with MPS ${MPS:-$(line with)}"
}
for ((run = 0; run < RUNS; run++)); do
    for kind in $KINDS; do
        case $kind in
        without) measure without ;;
        no-flags) MOED_DEVICE_FLAGS=0 measure no-flags ;;
        with) [ -n "$MPS" ] || measure with --mps ;;
        esac
    done
    echo "figure so far: $(all)" # where the next round takes too long
done
echo "figure: $(all)"
all_same
