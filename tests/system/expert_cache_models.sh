#!/bin/bash
# Makes a random model of each architecture with experts that can be cut into several segments. The golden models' experts are too
# narrow for that. Three layers have experts, because mlp predicts two layers ahead.
#   expert_cache_models.sh MOED DIRECTORY     DIRECTORY/ARCHITECTURE.gguf
set -eu
MOED=$1 DIRECTORY=$2
mkdir -p "$DIRECTORY"
# make NAME TYPE WIDTH OPTION...: width 192 gives 2, 3 or 6 segments of whole blocks of 32 values (F16: 12 of 16), 256 gives 2, 4 or 8
make() {
    "$MOED" mkmodel --arch "$1" --type "$2" --expert-width "$3" --layers 3 --hidden 128 --heads 4 --kv-heads 2 --head-dim 32 \
        --experts 8 --top-k 3 --vocab 400 --ctx 2048 --seed 5 -o "$DIRECTORY/$1.gguf" "${@:4}"
}
make llama Q8_0 256 --top-k 2
make qwen2moe Q4_1 192 --shared-width 96
make qwen3moe Q4_0 256 --experts 12 --top-k 4
make olmoe F16 192
make deepseek Q5_1 256 --layers 4
make deepseek2 Q8_0 192 --layers 4 --gate sigmoid --groups 4 --groups-used 2 --q-rank 64 --kv-rank 64
make phimoe IQ4_NL 256 --top-k 2
make gpt-oss MXFP4 192
make glm4moe Q6_K 256 --hidden 256 --layers 4 --groups 4
make nemotron_h_moe Q5_0 192 --groups 4
