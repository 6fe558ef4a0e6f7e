#!/bin/bash
# Measures prompts whose experts are not all on the device, against the time that they need at least: that of the link for each
# missing byte once, or that of computing, whichever is longer.
#   prompts.sh MOED MODEL [-d DEVICE] [-v SHARE] [-l "LINK..."] [-n TOKENS] [-b "BATCH..."] [-p "POLICY..."] [-r RUNS] [-k THREADS]
# DEVICE is emu (default) or cuda:N; SHARE per cent of the experts fit (25). The emulated link has LINK bytes a second (1G 4G). A batch
# has at most BATCH tokens of the prompt (256 512 1024 2048). POLICY is a policy, or POLICY+ASSIGNER (moed moed+load-all: the second
# leaves nothing to the CPU, so that only link and device count). The largest batch comes first. Runs take turns, each with a prompt
# of its own after one that warms up; medians, with the spread. tests/gpu/run reads the lines "figure: ". On the simulated device the
# script prints no speed.
set -eu
MOED=$1 MODEL=$2
shift 2
DEVICE=emu SHARE=25 LINKS="1G 4G" TOKENS=2048 BATCHES="256 512 1024 2048" POLICIES="moed moed+load-all" RUNS=5 THREADS=0
while getopts d:v:l:n:b:p:r:k: option; do
    case $option in
    d) DEVICE=$OPTARG ;; v) SHARE=$OPTARG ;; l) LINKS=$OPTARG ;; n) TOKENS=$OPTARG ;; b) BATCHES=$OPTARG ;;
    p) POLICIES=$OPTARG ;; r) RUNS=$OPTARG ;; k) THREADS=$OPTARG ;;
    *) exit 2 ;;
    esac
done
WORK=$(mktemp -d)
export MOED_RUN=$WORK/run
trap '"$MOED" down >/dev/null 2>&1 || true; rm -rf "$WORK"' EXIT
SEED=0
case $DEVICE,$(basename "${MOED_CUDA_MODULE:-}") in cuda*,*-sim.so) SIMULATED=yes ;; *) SIMULATED=no ;; esac

up() {
    "$MOED" down >/dev/null 2>&1 || true
    "$MOED" up "$MODEL" --speculate off --parallel 1 --ctx $((TOKENS + 64)) --threads "$THREADS" "$@" >/dev/null 2>"$WORK/up" ||
        { cat "$WORK/up" >&2; return 1; }
}
# ask: a prompt that no earlier one begins like
ask() {
    SEED=$((SEED + 1))
    awk -v n="$TOKENS" -v s=$SEED 'BEGIN { srand(s); for (i = 0; i < n; i++) printf "%s%d", i ? "," : "", 3 + int(250 * rand()) }' >"$WORK/ids"
    "$MOED" run -n 1 --ignore-end --temp 0 --tokens "$(cat "$WORK/ids")" >/dev/null
}
metric() { "$MOED" metrics "$1" | awk -v name="$2" '$1 == name { print $2 }'; }
# counters: prompts' seconds, activated segments, bytes over the link
counters() {
    local sum=0 where n
    for where in resident loaded cpu; do
        n=$(metric worker "moed_worker_segments_total{where=\"$where\"}")
        sum=$((sum + ${n:-0}))
    done
    echo "$(metric worker moed_worker_prefill_seconds_total) $sum $(metric memd moed_memd_link_bytes_total)"
}
# field NAME: a number of moed policy
field() { "$MOED" policy --json | tr ',{' '\n\n' | sed 's/[" ]//g' | awk -F: -v name="$1" '$1 == name { print $2; exit }'; }
# run FILE: appends a run's seconds, activated segments, bytes over the link, segments resident before it
run() {
    local before resident
    resident=$(field resident)
    before=$(counters)
    ask
    echo "$before $(counters) ${resident:-0}" | awk '{ print $4 - $1, $5 - $2, $6 - $3, $7 }' >>"$1"
}
sorted() { awk -v c="$2" '{ print $c }' "$1" | sort -g; }
median() { sorted "$1" "$2" | awk '{ v[NR] = $1 } END { printf "%g", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
spread() { sorted "$1" "$2" | awk 'NR == 1 { a = $1 } { b = $1 } END { printf "%.3g-%.3g", a, b }'; }
device() { # device SHARE LINK
    case $DEVICE in
    emu) echo "emu:vram=$1%,link=$2" ;;
    *) echo "$DEVICE,vram=$1%" ;;
    esac
}
[ "$DEVICE" = emu ] || LINKS=-

mapfile -t sizes < <(tr ' ' '\n' <<<"$BATCHES" | sort -gr)
largest=${sizes[0]}
compute=0 # not known
if ! up --device "$(device 100 100G)" --batch "$largest"; then
    computing="not measured: $(tail -n 1 "$WORK/up")"
else
    ask
    for ((i = 0; i < RUNS; i++)); do run "$WORK/compute"; done
    compute=$(median "$WORK/compute" 1)
    computing="$compute s ($(spread "$WORK/compute" 1))"
    [ $SIMULATED = no ] || computing=ran
fi

echo "$(uname -m), $(nproc) cores; $MODEL; $TOKENS tokens; all experts resident: $computing"
echo
echo "| link | policy | batch | tokens/s | s (least-most) | over the link, MB | link, once, s | computing, s | s / the longer |"
echo "|---|---|---:|---:|---:|---:|---:|---:|---:|"
# row LINK POLICY BATCH FILE: prints the runs in the file; also a line of what the table of tests/gpu/run shows
row() {
    [ $SIMULATED = no ] || { echo "| $1 | $2 | $3 | ran | | | | | |"; return; }
    awk -v link="$1" -v policy="$2" -v batch="$3" -v s="$(median "$4" 1)" -v spread="$(spread "$4" 1)" \
        -v moved="$(median "$4" 3)" -v resident="$(median "$4" 4)" -v used="$used" -v each="$rate" -v compute="$compute" \
        -v tokens="$TOKENS" -v figures="$WORK/figures" 'BEGIN {
        once = used > resident ? (used - resident) * each : 0
        longer = once > compute ? once : compute
        printf "| %s | %s | %d | %.0f | %.3g (%s) | %.0f | %.3g | %s | %s |\n", link, policy, batch, tokens / s, s, spread,
            moved / 1e6, once, (compute > 0 ? sprintf("%.3g", compute) : "-"), (longer > 0 ? sprintf("%.2f", s / longer) : "-")
        printf "%s, batch %d: %.0f tokens/s, %s of the longer\n", policy, batch, tokens / s,
            (longer > 0 ? sprintf("%.2f", s / longer) : "-") >>figures }'
    echo "figure so far: $SHARE % resident: $(paste -sd ';' "$WORK/figures")"
}
for link in $LINKS; do
    for policy in $POLICIES; do
        for batch in "${sizes[@]}"; do
            up --device "$(device "$SHARE" "$link")" --batch "$batch" --policy "${policy%+*}" || exit 1
            [ "$policy" = "${policy%+*}" ] || "$MOED" policy --assign "${policy#*+}" >/dev/null
            ask
            f=$WORK/$link-$policy-$batch
            for ((i = 0; i < RUNS; i++)); do run "$f"; done
            if [ "$batch" = "$largest" ]; then # the segments that a prompt uses are counted where it is one batch
                used=$(median "$f" 2)
                rate=$("$MOED" inspect --calibration --json | tr ',{' '\n\n' | sed 's/[" ]//g' |
                    awk -F: '$1 == "link_segment_s" { print $2; exit }')
            fi
            row "$link" "$policy" "$batch" "$f"
        done
    done
done
[ ! -e "$WORK/figures" ] || echo "figure: $SHARE % resident, all resident $computing: $(paste -sd ';' "$WORK/figures")"
