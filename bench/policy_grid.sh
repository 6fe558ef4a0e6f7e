#!/bin/bash
# Compares moed with other policies over a grid of synthetic traces, for bench/results/policy-grid.md.
#
# usage: bench/policy_grid.sh MOED_REPLAY DIR [SHAPE...]
#
# Shapes: demo, mixtral, qwen3-30b, gpt-oss-120b. Each is replayed with localities 0 to 0.95, 10, 25 and 50 % of its
# experts on the device, and 1 and 4 sequences. DIR receives one CSV file for each shape, locality and set of policies; what
# is there already is not computed again. bench/policy_grid.py DIR prints the tables.
set -eu
replay=$1 dir=$2
shift 2
shapes=("${@:-demo}")
others=moed/cache=lru,moed/cache=lfu,qstar,threshold,score,dali,moed/cache=belady
mkdir -p "$dir"

# Fewer layers than the model has, and as much less of the dense weights: layers behave alike.
options_of() {
    case $1 in
    demo) echo --layers 8 --experts 32 --topk 4 --segment-bytes 79000 --dense-bytes 3000000 ;;
    mixtral) echo --like mixtral --layers 16 --dense-bytes 415000000 ;;
    qwen3-30b) echo --like qwen3-30b --layers 12 --dense-bytes 173000000 ;;
    gpt-oss-120b) echo --like gpt-oss-120b --layers 12 --dense-bytes 548000000 ;;
    esac
}
machine_of() {
    case $1 in
    gpt-oss-120b) echo 3090-epyc7532 ;;
    *) echo desktop ;;
    esac
}

# run NAME OPTION...: one file of results.
run() {
    local out=$dir/$1.csv
    shift
    [ -e "$out" ] || "$replay" "$trace" --machine "$machine" --vram 10%,25%,50% --batch 1,4 --csv "$out" "$@" >/dev/null
}

for shape in "${shapes[@]}"; do
    machine=$(machine_of "$shape")
    for locality in 0 0.3 0.6 0.9 0.95; do
        trace=$dir/$shape.$locality.trace
        read -ra options <<<"$(options_of "$shape")"
        [ -e "$trace" ] || "$replay" --synthesize "${options[@]}" --tokens 1792 --seed 101 --locality "$locality" -o "$trace"
        run "$shape.$locality.moed" --policies moed
        for half_life in 4 8 32 128; do
            run "$shape.$locality.fixed-$half_life" --policies moed --half-life "$half_life"
        done
        run "$shape.$locality.others" --policies "$others"
        rm "$trace"
    done
done
