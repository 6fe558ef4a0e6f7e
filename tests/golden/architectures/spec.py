"""The definition of a golden model: its sizes and the other parameters of its architecture."""

from dataclasses import dataclass

from gguf import GGMLQuantizationType as Type

CONTEXT = 512


@dataclass(frozen=True)
class Rope:
    """Rotary embedding. kind: default, yarn or longrope, as transformers names them."""

    kind: str = "default"
    base: float = 1e6
    factor: float = 1.0
    original_context: int = CONTEXT
    mscale_all_dim: float = 0.0  # DeepSeek-V2's mscale, of all dimensions
    magnitude: float = 0.0  # of cosines and sines, if the file has a key for it
    beta_fast: float = 0.0  # YaRN: where the ramp begins, if the file has keys for its ends; it ends at 1
    temperature: float = 0.0  # growth of q with the logarithm of the position / original_context


@dataclass(frozen=True)
class Latent:
    """DeepSeek-V2's latent attention. A head's key is plain + rotated values."""

    kv_rank: int
    plain: int
    rotated: int
    value: int
    q_rank: int = 0  # 0: q is not compressed
    unsplit: bool = False  # older files: attn_kv_b whole, heads counted as in the original


@dataclass(frozen=True)
class Delta:
    """Linear attention (gated DeltaNet), or Mamba2: groups are the key heads, k_dim is the state's size."""

    k_heads: int
    v_heads: int
    k_dim: int
    v_dim: int
    taps: int = 4
    early: bool = False  # qwen3next: the layout of files before January 2026

    @property
    def keys(self):
        return self.k_heads * self.k_dim

    @property
    def values(self):
        return self.v_heads * self.v_dim


@dataclass(frozen=True)
class Router:
    """DeepSeek-V2's and V3's choices, which the file tells."""

    sigmoid: bool = False
    bias: bool = False
    normalise: bool = False
    groups: int = 0
    groups_used: int = 0
    scale: float = 1.0


@dataclass(frozen=True)
class Spec:
    """One golden model. seed: the first one tried; the one recorded passes all checks."""

    name: str
    arch: str
    seed: int
    d_model: int
    heads: int
    kv_heads: int
    head_dim: int
    width: int  # of a routed expert
    experts: int
    experts_used: int
    layers: int = 2
    dense_layers: int = 0  # leading layers without experts
    dense_width: int = 0
    shared_width: int = 0
    shared_count: int = 1  # the shared width is of so many experts
    tied: bool = False
    eps: float = 1e-6
    layer_eps: float = 0.0  # cohere2moe: of layer norms. The file has it beside eps, and the norms are RMS norms
    window: int = 0
    qkv_bias: bool = False  # where the architecture's files may have them
    qk_norm: bool = True  # the same
    further_layers: int = 0  # after the trunk, for further tokens: a runtime leaves them alone
    early: bool = False  # without the key that early files of the model lack
    original: str = ""  # deepseek2: "glm" (4.7-Flash), "mistral" (Large 3); else DeepSeek's classes
    rotated_dims: int = 0  # of a head; 0: all
    rope: Rope = Rope()
    latent: Latent | None = None
    delta: Delta | None = None
    attention_layers: tuple = ()  # lfm2moe: the others are short convolutions; gemma4: have a window
    global_heads: tuple = ()  # gemma4, layers without a window: key-value heads, size of a head
    windowed_base: float = 1e4  # gemma4: of the rotation in the layers with a window
    logit_cap: float = 0.0
    logit_scale: float = 1.0
    layer_heads: tuple = ()  # windowed.py: query and key-value heads of the layers with a window
    value_dim: int = 0  # of a head; 0: head_dim
    value_scale: float = 1.0
    gate_by_value: bool = False  # attention's gate has a row for each value, not for each head
    taps: int = 3  # of these
    pattern: str = ""  # nemotron_h_moe: a letter for each block
    full_interval: int = 4  # of so many layers the last has attention, where the others are linear
    router: Router = Router()
    type: Type = Type.F32
    dense_type: Type | None = None  # of matrices that are no routed expert's; None: the same
    router_margin: float = 1e-2  # between the last chosen expert's logit and the next
    greedy_margin: float = 1e-2  # between the best token's logit and the second

    @property
    def context(self):
        return int(self.rope.factor * self.rope.original_context) if self.rope.kind == "yarn" else CONTEXT

    @property
    def rotated(self):
        return self.latent.rotated if self.latent else self.rotated_dims or self.head_dim

    @property
    def explicit_head_dim(self):
        return self.head_dim * self.heads != self.d_model
