"""The architectures of the golden models, by their names in GGUF."""

from .deepseek import Deepseek, Deepseek2
from .gpt_oss import GptOss
from .grouped import Mixtral, Olmoe, Qwen2Moe, Qwen3Moe
from .phimoe import Phimoe

ARCHITECTURES = {
    "llama": Mixtral(),
    "qwen2moe": Qwen2Moe(),
    "qwen3moe": Qwen3Moe(),
    "olmoe": Olmoe(),
    "deepseek": Deepseek(),
    "deepseek2": Deepseek2(),
    "gpt-oss": GptOss(),
    "phimoe": Phimoe(),
}
