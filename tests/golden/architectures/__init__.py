"""The architectures of the golden models, by their names in GGUF."""

from .deepseek import Deepseek, Deepseek2, Indexed, Mistral4
from .delta import Qwen3Next, Qwen35Moe
from .gemma4 import Gemma4
from .gpt_oss import GptOss
from .grouped import HunyuanMoe, Mixtral, Olmoe, Qwen2Moe, Qwen3Moe, Qwen3VlMoe
from .lfm2 import Lfm2Moe
from .nemotron import NemotronH
from .phimoe import Phimoe
from .routed import BailingMoe2, Dots1, Ernie45Moe, ExaoneMoe, Glm4Moe, HyV3, MiniMaxM2
from .windowed import Afmoe, Cohere2Moe, Laguna, MimoV2, Step35

ARCHITECTURES = {
    "llama": Mixtral(),
    "qwen2moe": Qwen2Moe(),
    "qwen3moe": Qwen3Moe(),
    "olmoe": Olmoe(),
    "deepseek": Deepseek(),
    "deepseek2": Deepseek2(),
    "mistral4": Mistral4(),
    "glm-dsa": Indexed(),
    "deepseek32": Indexed(),
    "gpt-oss": GptOss(),
    "phimoe": Phimoe(),
    "glm4moe": Glm4Moe(),
    "minimax-m2": MiniMaxM2(),
    "dots1": Dots1(),
    "qwen3vlmoe": Qwen3VlMoe(),
    "bailingmoe2": BailingMoe2(),
    "ernie4_5-moe": Ernie45Moe(),
    "hunyuan-moe": HunyuanMoe(),
    "hy_v3": HyV3(),
    "exaone-moe": ExaoneMoe(),
    "qwen35moe": Qwen35Moe(),
    "qwen3next": Qwen3Next(),
    "lfm2moe": Lfm2Moe(),
    "nemotron_h_moe": NemotronH(),
    "gemma4": Gemma4(),
    "laguna": Laguna(),
    "step35": Step35(),
    "mimo2": MimoV2(),
    "afmoe": Afmoe(),
    "cohere2moe": Cohere2Moe(),
}
