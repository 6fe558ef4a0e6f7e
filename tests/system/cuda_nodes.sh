#!/bin/bash
# How many nodes the CUDA graphs of a decoded token have, a layer: limits by architecture. The simulation notes each graph.
#   cuda_nodes.sh MOED MODULE
MOED=$1 MODULE=$2
. "$(dirname "$0")/../deployment.sh"
[ -e "$MODULE" ] || skip "$MODULE is not here"
export MOED_CUDA_MODULE=$MODULE MOED_CUSIM_GRAPHS=$WORK/graphs
LAYERS=3

# graphs DEVICE: starts the model, lets it answer, and leaves a line for each graph.
graphs() {
    rm -f "$WORK/graphs"
    "$MOED" up "$WORK/model" --device "$1" --policy lru --assign load-all >/dev/null 2>"$WORK/up" || fail "up: $(cat "$WORK/up")"
    local i
    for ((i = 0; i < 20; i++)); do # until every expert has been used, and then once more
        [ "$(policy_field free)" != 0 ] || i=19
        "$MOED" run -n 12 --ignore-end "$i" >/dev/null || fail "no answer"
    done
    "$MOED" down >/dev/null
    [ -s "$WORK/graphs" ] || fail "no graph was made"
}
# most COPIES DIVISOR LIMIT: the most nodes of a graph that ends with a copy to the host (yes) or not (no). A graph with more than LIMIT
# nodes has DIVISOR layers.
most() {
    awk -v copies="$1" -v layers="$2" -v limit="$3" '
        ($0 ~ /a copy$/) == (copies == "yes") { n = $1 > limit ? int(($1 + layers - 1) / layers) : $1; if (n > most) most = n }
        END { print most + 0 }' "$WORK/graphs"
}
within() { # within WHAT NODES LIMIT
    say "$1: $2 nodes"
    [ "$2" -gt 0 ] && [ "$2" -le "$3" ] || { cat "$WORK/graphs" >&2; fail "$1: $2 nodes, at most $3"; }
}
# model ARCH OPTION...
model() {
    "$MOED" mkmodel --arch "$1" --type Q4_K_M --layers $LAYERS --hidden 256 --experts 8 --top-k 2 --expert-width 256 --vocab 300 "${@:2}" \
        -o "$WORK/model" >"$WORK/mkmodel" 2>&1 || fail "mkmodel $1: $(cat "$WORK/mkmodel")"
}
# nodes ARCH LIMIT [DENSE]: of a layer that the device runs without the host; DENSE layers have no experts.
nodes() {
    model "$1"
    graphs cuda
    within "$1" "$(most no $((LAYERS - ${3:-0})) "$2")" "$2"
}

nodes qwen3moe 11
graphs cuda:0,vram=40%
within "qwen3moe, before the host's plan" "$(most yes 1 99)" 9
nodes qwen2moe 11
nodes gpt-oss 11
nodes olmoe 13
nodes glm4moe 11 1
nodes deepseek2 16 1
nodes qwen35moe 13 # two layers of linear attention, whose heads of 16 values are quantised in a launch of their own
nodes gemma4 21
nodes afmoe 14 1
say "ok: nodes"
