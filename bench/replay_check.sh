#!/bin/bash
# Compares the simulator with reality: the same text, policies and emulated device, served and replayed.
#
# usage: bench/replay_check.sh MOED MOED_REPLAY MODEL TEXT [-d DEVICE] [-v VRAM] [-n TOKENS] [-o OPTIONS] [-c] [POLICY...]
#
# Records a trace of TEXT (one sequence of TOKENS tokens). For each policy it then serves MODEL on an emulated device, computes the
# tokens one at a time, and replays them with the costs that the worker measured; with -c all policies with those that the last one's
# worker stored, so that only the policies differ. Where the worker's trial has turned prefetches, loads or the device's experts off,
# the replay has none.
# Prints for both: segments computed from what was on the device, segments computed after a load, bytes copied, and the time of a
# layer's experts. The first token is left out: it finds nothing on the device, and a replay counts it as a prompt.
set -eu
moed=$1 replay=$2 model=$3 text=$4
shift 4
device=link=2G vram=25 tokens=400 options=() common=no
while getopts "d:v:n:o:c" option; do
    case $option in
    d) device=$OPTARG ;;
    v) vram=$OPTARG ;;
    n) tokens=$OPTARG ;;
    o) read -ra options <<<"$OPTARG" ;;
    c) common=yes ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
policies=("${@:-lru}")

work=$(mktemp -d)
export MOED_RUN=$work/run XDG_CACHE_HOME=$work/cache
trap '"$moed" down >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
mkdir -p "$XDG_CACHE_HOME"

"$moed" profile "$model" --text "$text" --max-tokens "$tokens" --context "$tokens" --prompt 1 --hidden all \
    -o "$work/trace" >/dev/null 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
ids=$("$moed" inspect "$work/trace" --sequence 0)

# A number of `moed policy --json`.
field() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p" "$at/policy"; }
# A column of moed-replay's CSV, by its name.
column() {
    awk -F, -v name="$1" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) c = i } NR == 2 { print $c }' "$at/csv"
}

# Files of a policy are in a folder of its own.
serve() {
    "$moed" up "$model" --speculate off --device "emu:vram=$vram%,$device" --policy "$policy" --ctx "$((tokens + 8))" "${options[@]}" \
        >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
    "$moed" logits --tokens "$ids" --stepwise -o "$work/logits" >/dev/null
    "$moed" policy --json >"$at/policy"
    "$moed" down >/dev/null 2>&1 # the worker stores its cost corrections
    cp "$XDG_CACHE_HOME"/moed/*.calibration "$at/calibration"
}

# The policy as the worker's trial left it: a replay has no trial.
served() {
    local parts=$policy
    ! grep -q '"prefetch": false' "$at/policy" || parts+=/predictor=none
    ! grep -q '"loading": false' "$at/policy" || parts+=/assign=layerwise
    echo "$parts"
}

compare() {
    local on_device=$vram
    ! grep -q '"device_computes": false' "$at/policy" || on_device=0.001 # not one segment
    "$replay" "$work/trace" --policies "$(served)" --vram "$on_device%" --batch 1 --prompt 1 \
        --machine "calibration:$costs" --outside "$(field outside_step_s)s" --csv "$at/csv" >/dev/null
    segments=$(($(field segments_resident) + $(field segments_loaded) + $(field segments_cpu)))
    awk -v p="$policy" -v n="$segments" -v device="$(field segments_resident)" -v on_device="$(column on_device)" \
        -v loads="$(field segments_loaded)" -v loaded="$(column loaded)" \
        -v tokens="$tokens" -v decoded="$(column decode_tokens)" \
        -v copied="$(field link_bytes)" -v moved="$(column moved_bytes)" \
        -v s="$(field layer_s)" -v layers="$(field layers)" -v layer="$(column layer_s)" \
        'BEGIN { counted = n * decoded / tokens
                 printf "| %s | %d, %d | %d, %d | %.1f, %.1f | %.1f, %.1f | %.3f |\n", p, device, on_device * counted + 0.5,
                 loads - (loads < n / tokens ? loads : n / tokens), loaded * counted + 0.5, copied * 1e-6, moved * 1e-6,
                 s / layers * 1e6, layer * 1e6, layer / (s / layers) }'
}

for policy in "${policies[@]}"; do
    at=$work/${policy//\//+}
    mkdir -p "$at"
    serve
    costs=$at/calibration
done
echo "| policy | segments on the device: real, replayed | loaded | copied, MB | a layer's experts, us | replayed / real |"
echo "|---|---|---|---|---|---|"
for policy in "${policies[@]}"; do
    at=$work/${policy//\//+}
    [ $common = yes ] || costs=$at/calibration
    compare
done
