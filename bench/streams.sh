#!/bin/bash
# Tokens a second of 1 to 64 answers at once, and how much each doubling gains: medians of RUNS, in turns on one deployment.
#   [STREAMS=1,2,4,8,16,32,64] [RUNS=5] [GENERATE=64] [THREADS=N] streams.sh MOED-BENCH MODEL [OPTION...]
#   PEER=yes: then bench/peer/run with the same file, once for each number of streams; the rest of its options are OPTIONs.
# MODEL: a GGUF file; one that does not exist is made in the shape of bench/peer's models, of type ${TYPE:-Q4_K_M}.
set -eu
BENCH=$1 MODEL=$2
shift 2
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/figures.sh"
STREAMS=${STREAMS:-1,2,4,8,16,32,64} RUNS=${RUNS:-5} GENERATE=${GENERATE:-64}
MOED=$(dirname "$BENCH")/../client/moed
[ -x "$MOED" ] || MOED=$(dirname "$BENCH")/moed
[ -e "$MODEL" ] || "$MOED" mkmodel --arch qwen3moe --layers 12 --experts 64 --expert-width 512 --top-k 8 --hidden 1024 --heads 16 \
    --kv-heads 4 --head-dim 128 --vocab 50000 --type "${TYPE:-Q4_K_M}" -o "$MODEL" >/dev/null
threads=()
[ -z "${THREADS:-}" ] || threads=(--threads "$THREADS")

if [ "${PEER:-}" = yes ]; then
    for n in ${STREAMS//,/ }; do
        echo "## $n streams"
        "$HERE/peer/run" --model "$MODEL" --streams "$n" --generate "$GENERATE" --runs "$RUNS" "$@"
    done
    exit
fi

json=$(mktemp)
trap 'rm -f "$json"' EXIT
"$BENCH" --model "$MODEL" --prompt-tokens 1 --generate "$GENERATE" --parallel "$STREAMS" --runs "$RUNS" "${threads[@]}" --json "$@" > "$json" ||
    [ -s "$json" ] || exit 1 # else a row failed
echo "| streams | tokens/s of all | of one | times the row above |"
echo "|---:|---:|---:|---:|"
python3 - "$json" <<'END'
import json, sys
before = None
for row in json.load(open(sys.argv[1]))["rows"]:
    n, speed = row["streams"], (row["decode_tokens_per_s"] or {}).get("median")
    if not speed:
        print(f"| {n} | - | - | - |")
        continue
    print(f"| {n} | {speed:.0f} | {speed / n:.1f} | " + (f"{speed / before:.2f} |" if before else "|"))
    before = speed
END
