#!/bin/bash
# The preset `debug` compiles and links: without optimisation a program needs libraries, and the compiler sees what may be cut, that other
# builds do not show. Two programs stand for all, which take minutes. usage: debug.sh CMAKE SOURCE COMPILER
set -u
cmake=$1 source=$2 compiler=$3
command -v ninja >/dev/null || { echo "skipped: ninja is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$cmake" -S "$source" -B "$work" -G Ninja -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_C_COMPILER=$compiler" -DMOED_CUDA=OFF -DMOED_TESTS=OFF >"$work/log" 2>&1 &&
    "$cmake" --build "$work" --target bench-grammar moed-supervise >"$work/log" 2>&1 || { tail -n 20 "$work/log"; exit 1; }
