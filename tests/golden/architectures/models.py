"""The golden models: one for each architecture's peculiarities and one for each tensor type."""

from gguf import GGMLQuantizationType as Type

from .spec import CONTEXT, Delta, Latent, Rope, Router, Spec


def quantised(kind, seed, arch="qwen3moe", **changes):
    """A one-layer model of a tensor type; wide margins, for kernels round activations."""
    small = {"d_model": 64, "width": 64, "head_dim": 32, "experts": 4}
    shape = {"heads": 4, "kv_heads": 2, "experts_used": 2, "layers": 1, "tied": True}
    margins = {"router_margin": 0.05, "greedy_margin": 0.05}
    return Spec(f"quant-{kind.name}", arch, seed, type=kind, **(small | shape | margins | changes))


def phimoe(name, seed, original_context):
    """Both experts of a token often have a rival within the 2 % of the sparse mixer."""
    rope = Rope("longrope", base=1e4, original_context=original_context)
    sizes = {"width": 24, "experts": 9, "experts_used": 2, "eps": 1e-5}
    return Spec(name, "phimoe", seed, 32, 4, 2, 8, rope=rope, router_margin=5e-4, **sizes)


def deepseek2(name, seed, latent, arch="deepseek2", **changes):
    """Heads of 24 for q and k, 20 for v; a latent vector of 24."""
    shape = {"d_model": 32, "heads": 4, "head_dim": 24, "kv_heads": 4 if latent.unsplit else 1, "width": 20}
    layers = {"layers": 2, "dense_layers": 1, "dense_width": 44}
    values = shape | layers | {"shared_width": 20, "shared_count": 1} | changes
    return Spec(name, arch, seed, latent=latent, **values)


def latent(**changes):
    return Latent(**({"kv_rank": 24, "plain": 12, "rotated": 12, "value": 20} | changes))


def delta_net(name, arch, seed, **changes):
    """Five layers, of which the fourth has attention."""
    shape = {"heads": 4, "kv_heads": 2, "head_dim": 16, "width": 12, "experts": 5, "experts_used": 2}
    sizes = {"layers": 5, "shared_width": 12, "rotated_dims": 8, "delta": Delta(2, 6, 16, 16)}
    values = shape | sizes | {"rope": Rope(base=1e7), "router_margin": 2e-3} | changes
    return Spec(name, arch, seed, 32, **values)


# A ramp from pair 1 to pair 4 of the six rotated ones.
DEEPSEEK_YARN = Rope("yarn", base=1e4, factor=4.0, original_context=1024, mscale_all_dim=0.707)
DENSE_FIRST = {"dense_layers": 1, "dense_width": 44, "shared_width": 20, "router_margin": 2e-3}
K_SHAPE = {"d_model": 256, "width": 256, "head_dim": 16, "experts": 3}

# fmt: off
SPECS = [
    # Grouped queries, an expert width that no vector register divides, explicit head size.
    Spec("mixtral", "llama", 12, 32, 4, 2, 16, width=40, experts=8, experts_used=2, eps=1e-5),
    # Biases, shared expert with its gate, no renormalised weights, one k, v head a query head.
    Spec("qwen2moe", "qwen2moe", 15, 32, 2, 2, 16, width=32, experts=8, experts_used=4, shared_width=48),
    # QK norm, heads wider than d_model together, grouped queries, tied embeddings.
    Spec("qwen3moe", "qwen3moe", 1, 32, 4, 2, 32, width=32, experts=8, experts_used=2, tied=True),
    # Every context is within the original one; every context that answers a test is beyond it.
    phimoe("phimoe", 1081, original_context=CONTEXT),
    phimoe("phimoe-long", 93, original_context=4),
    # QK norm over whole vectors.
    Spec("olmoe", "olmoe", 12, 32, 4, 4, 8, width=24, experts=8, experts_used=3, eps=1e-5),
    # A dense layer first, a shared expert of two experts' width without a gate.
    Spec(
        "deepseek", "deepseek", 4, 32, 4, 2, 8, width=20, experts=7, experts_used=3, dense_layers=1,
        dense_width=44, shared_width=40, shared_count=2, layers=3,
    ),
    # DeepSeek-V2-Lite: q not compressed, softmax, YaRN.
    deepseek2(
        "deepseek2-lite", 55, latent(), experts=6, experts_used=3, layers=3, rope=DEEPSEEK_YARN,
        shared_width=40, shared_count=2, router_margin=1e-3,
    ),
    # DeepSeek-V2: q compressed, the best groups by their best expert, weights scaled.
    deepseek2(
        "deepseek2-v2", 50, latent(q_rank=28), experts=12, experts_used=3, rope=DEEPSEEK_YARN,
        router=Router(groups=4, groups_used=2, scale=3.0), router_margin=2e-3,
    ),
    # DeepSeek-V3: sigmoid, selection bias, the best groups by their two best, normalised weights.
    deepseek2(
        "deepseek2-v3", 3, latent(q_rank=28), experts=12, experts_used=3, rope=DEEPSEEK_YARN,
        router=Router(True, True, True, groups=4, groups_used=2, scale=2.5), router_margin=2e-3,
    ),
    # Moonlight: V3's router without groups, V2-Lite's attention; another eps than the latent norm's.
    deepseek2(
        "deepseek2-moonlight", 2, latent(), experts=8, experts_used=3, eps=1e-5, rope=Rope(base=5e4),
        router=Router(True, True, True, scale=2.446), router_margin=2e-3,
    ),
    # GLM-4.7-Flash: the same router, q compressed, values as wide as keys, a layer after the trunk;
    # another eps than that of both latent norms.
    deepseek2(
        "deepseek2-glm", 1, latent(q_rank=28, value=24), experts=8, experts_used=4, eps=1e-5, further_layers=1,
        router=Router(True, True, True, scale=1.8), router_margin=2e-3, original="glm",
    ),
    # The same in files that do not say the kind of gate.
    deepseek2(
        "deepseek2-glm-early", 4, latent(q_rank=28, value=24), experts=8, experts_used=4, eps=1e-5, early=True,
        router=Router(True, True, True, scale=1.8), router_margin=2e-3, original="glm",
    ),
    # Kimi-K2: V3 without groups; YaRN's ramp begins and ends at the same number of turns.
    deepseek2(
        "deepseek2-kimi", 1, latent(q_rank=28), experts=8, experts_used=3,
        rope=Rope("yarn", base=1e4, factor=4.0, original_context=1024, mscale_all_dim=1.0, beta_fast=1.0),
        router=Router(True, True, True, scale=2.827), router_margin=2e-3,
    ),
    # Mistral-Large-3: softmax with normalised weights; q grows with the position, from 16 on.
    deepseek2(
        "deepseek2-mistral", 1, latent(q_rank=28), experts=8, experts_used=3, router=Router(normalise=True),
        rope=Rope("yarn", base=1e4, factor=4.0, original_context=16, mscale_all_dim=1.0, temperature=0.5),
        router_margin=1e-3, original="mistral",
    ),
    # Mistral-Small-4: the same. q grows by the model's 0.1, which the file does not say; no dense layer.
    deepseek2(
        "mistral4", 85, latent(q_rank=28), arch="mistral4", experts=8, experts_used=3, dense_layers=0, dense_width=0,
        rope=Rope("yarn", base=1e4, factor=4.0, original_context=16, mscale_all_dim=1.0, temperature=0.1),
        router=Router(normalise=True), router_margin=1e-3, original="mistral",
    ),
    # GLM-5: an indexer, which within top_k positions changes nothing; another eps than the latent norms'.
    deepseek2(
        "glm-dsa", 1, latent(q_rank=28, value=24), arch="glm-dsa", experts=8, experts_used=3, eps=1e-5,
        router=Router(True, True, True, scale=2.5), router_margin=2e-3, further_layers=1,
    ),
    # DeepSeek-V3.2: the same with V3's groups and YaRN.
    deepseek2(
        "deepseek32", 1, latent(q_rank=28), arch="deepseek32", experts=12, experts_used=3, rope=DEEPSEEK_YARN,
        router=Router(True, True, True, groups=4, groups_used=2, scale=2.5), router_margin=2e-3,
    ),
    # Older files of DeepSeek-V2.
    deepseek2(
        "deepseek2-unsplit", 2, latent(q_rank=28, unsplit=True), experts=6, experts_used=3,
        rope=DEEPSEEK_YARN, router_margin=1e-3,
    ),
    # Sinks, windows of 8 in the first and third layer, clamped experts with biases, YaRN.
    Spec(
        "gpt-oss", "gpt-oss", 3, 32, 4, 2, 16, width=20, experts=6, experts_used=3, layers=3, window=8,
        eps=1e-5, rope=Rope("yarn", base=1.5e5, factor=4.0, original_context=1024),
    ),
    # GLM-4.5-Air: biases of q, k and v, no norms of q and k, half of a head rotates, a layer after
    # the trunk that is not computed.
    Spec(
        "glm4moe-air", "glm4moe", 1, 32, 4, 2, 16, width=20, experts=8, experts_used=3, eps=1e-5,
        router=Router(True, True, True), qkv_bias=True, qk_norm=False, rotated_dims=8, further_layers=1, **DENSE_FIRST,
    ),
    # GLM-4.5 to 4.7: norms of q and k, weights scaled.
    Spec(
        "glm4moe", "glm4moe", 1, 32, 4, 2, 16, width=20, experts=8, experts_used=3, eps=1e-5,
        router=Router(True, True, True, scale=2.5), qkv_bias=True, rotated_dims=8, **DENSE_FIRST,
    ),
    # Norms over whole vectors, which are no two of one size; half of a head rotates.
    Spec(
        "minimax-m2", "minimax-m2", 1, 32, 6, 3, 8, width=24, experts=8, experts_used=3, rotated_dims=4,
        rope=Rope(base=5e6), router_margin=2e-3,
    ),
    # dots.llm1: keys and values for each head, two shared experts, the second layer dense too.
    Spec(
        "dots1", "dots1", 1, 32, 4, 4, 12, width=20, experts=8, experts_used=3,
        router=Router(True, True, True, scale=2.5), layers=3, dense_layers=2, dense_width=44, shared_width=40,
        shared_count=2, router_margin=2e-3,
    ),
    # Qwen3-VL's text part: sections of the rotation that a text does not show.
    Spec("qwen3vlmoe", "qwen3vlmoe", 1, 32, 4, 2, 16, width=24, experts=8, experts_used=3, rope=Rope(base=5e6)),
    # Ling 2.0: q, k and v in one tensor, groups of experts, a layer after the trunk.
    Spec(
        "bailingmoe2", "bailingmoe2", 1, 32, 4, 2, 16, width=20, experts=12, experts_used=3, rotated_dims=8,
        router=Router(True, True, True, groups=4, groups_used=2, scale=2.5), further_layers=1, **DENSE_FIRST,
    ),
    # Hy3: the first layer is dense, which the file does not say; a layer after the trunk.
    Spec(
        "hy_v3", "hy_v3", 1, 32, 4, 2, 16, width=20, experts=8, experts_used=3, eps=1e-5, rope=Rope(base=11158840.0),
        router=Router(True, True, True, scale=2.826), further_layers=1, **DENSE_FIRST,
    ),
    # ERNIE 4.5: a softmax with a selection bias, two shared experts, adjacent pairs, tied.
    Spec(
        "ernie4_5-moe", "ernie4_5-moe", 1, 32, 4, 2, 8, width=20, experts=8, experts_used=3, eps=1e-5, tied=True,
        rope=Rope(base=5e5), **(DENSE_FIRST | {"shared_width": 40, "shared_count": 2}),
    ),
    # Hunyuan-A13B: q and k are normed after their rotation; tied.
    Spec(
        "hunyuan-moe", "hunyuan-moe", 1, 32, 4, 2, 16, width=24, experts=8, experts_used=3, shared_width=24,
        eps=1e-5, tied=True,
    ),
    # K-EXAONE: windows of 8 in three layers of four, which alone rotate.
    Spec(
        "exaone-moe", "exaone-moe", 1, 32, 4, 2, 16, width=12, experts=5, experts_used=2, eps=1e-5, window=8,
        router=Router(True, True, True, scale=2.5), **(DENSE_FIRST | {"layers": 5, "shared_width": 12}),
    ),
    # Qwen3.5 and 3.6: three linear layers of four, three value heads a key head, which tells their
    # orders apart; a quarter of a head rotates; a layer after the trunk.
    delta_net("qwen35moe", "qwen35moe", 4, further_layers=1),
    # Qwen3-Next: other orders of heads, and no two sizes alike; in both layouts of its files.
    delta_net("qwen3next", "qwen3next", 1, delta=Delta(2, 4, 12, 16), tied=True),
    delta_net("qwen3next-early", "qwen3next", 1, delta=Delta(2, 4, 12, 16, early=True)),
    # LFM2: short convolutions, attention in the third and fifth layer, two dense layers; tied.
    Spec(
        "lfm2moe", "lfm2moe", 1, 32, 4, 2, 8, width=20, experts=6, experts_used=2, eps=1e-5, tied=True, layers=6,
        dense_layers=2, dense_width=28, attention_layers=(2, 4), router_margin=2e-3,
    ),
    # Nemotron-H: layers of Mamba2, of Mamba2 and attention, of attention, each with experts; heads of 10 in two groups.
    Spec(
        "nemotron_h_moe", "nemotron_h_moe", 1, 32, 4, 2, 16, width=20, experts=6, experts_used=2, eps=1e-5,
        layers=9, pattern="MEM*EME*E", delta=Delta(2, 6, 12, 10), shared_width=28, rotated_dims=10, further_layers=1,
        router=Router(True, True, True, groups=3, groups_used=2, scale=2.5), router_margin=2e-3,
    ),
    # Gemma 4: heads of 8 with a window of 5 in the first, third and fourth layer, else heads of 16 with one for keys
    # and values, of which a quarter of the pairs turns; logits beyond the cap.
    Spec(
        "gemma4", "gemma4", 1, 32, 4, 2, 8, width=12, experts=5, experts_used=2, tied=True, layers=5, dense_width=28,
        attention_layers=(1, 4), global_heads=(1, 16), window=5, logit_cap=4.0, router_margin=2e-3,
    ),
    # Laguna: more heads where there is a window, a gate for each head, half of a head rotates in the first and fifth
    # layer, by YaRN there; the second model has no windows and a gate for each value.
    Spec(
        "laguna", "laguna", 15, 32, 4, 2, 16, width=12, experts=5, experts_used=2, window=6, rotated_dims=8,
        attention_layers=(0, 4), layer_heads=(6, 2),
        rope=Rope("yarn", base=5e5, factor=4.0, original_context=128, magnitude=1.3),
        router=Router(True, True, True, scale=2.5), **(DENSE_FIRST | {"layers": 5, "shared_width": 16}),
    ),
    Spec(
        "laguna-full", "laguna", 5, 32, 4, 2, 16, width=12, experts=5, experts_used=2, rotated_dims=8,
        attention_layers=(0, 1, 2), gate_by_value=True, rope=Rope(base=5e5), tied=True,
        router=Router(True, True, True), **(DENSE_FIRST | {"layers": 3, "shared_width": 16}),
    ),
    # Step-3.5: heads by layer, factors of half a head's rotation in the first and fourth layer, limits.
    Spec(
        "step35", "step35", 5, 32, 4, 2, 16, width=12, experts=5, experts_used=2, window=7, eps=1e-5,
        attention_layers=(0, 3), layer_heads=(6, 2), rope=Rope(base=5e4), further_layers=1,
        router=Router(True, True, True, scale=1.5), **(DENSE_FIRST | {"layers": 5, "shared_width": 16}),
    ),
    # MiMo-V2: keys of 12 and values of 8, of which 4 rotate; sinks and more key-value heads where there is a window.
    Spec(
        "mimo2", "mimo2", 4, 32, 4, 1, 12, width=12, experts=5, experts_used=2, window=6, eps=1e-5, rotated_dims=4,
        attention_layers=(0, 4), layer_heads=(4, 2), value_dim=8, value_scale=0.7, rope=Rope(base=5e6),
        router=Router(True, True, True), **(DENSE_FIRST | {"layers": 5, "shared_width": 0}),
    ),
    # Files before May 2026: they do not say the factor of attention's output.
    Spec(
        "mimo2-early", "mimo2", 14, 32, 4, 1, 12, width=12, experts=5, experts_used=2, window=6, eps=1e-5, rotated_dims=4,
        attention_layers=(0, 4), layer_heads=(4, 2), value_dim=8, value_scale=0.707, early=True, rope=Rope(base=5e6),
        router=Router(True, True, True), **(DENSE_FIRST | {"layers": 5, "shared_width": 0}),
    ),
    # Trinity: the fourth layer of five has no window and does not rotate; norms after the parts; two shared experts.
    Spec(
        "afmoe", "afmoe", 8, 32, 4, 2, 8, width=12, experts=5, experts_used=2, window=6, eps=1e-5, gate_by_value=True,
        attention_layers=(3,), router=Router(True, True, True, scale=2.0), shared_count=2,
        **(DENSE_FIRST | {"layers": 5, "shared_width": 24}),
    ),
    # North-Mini-Code: the first layer is dense, sees everything and rotates; the fourth does not rotate. RMS norms,
    # and the file has the epsilon of layer norms, too.
    Spec(
        "cohere2moe", "cohere2moe", 17, 32, 4, 2, 8, width=12, experts=5, experts_used=2, window=6, eps=1e-6,
        layer_eps=1e-2, tied=True, attention_layers=(0, 3), router=Router(sigmoid=True), logit_scale=0.5,
        rope=Rope(base=5e4), shared_count=2, **(DENSE_FIRST | {"layers": 5, "shared_width": 24}),
    ),
    # The same with layer norms: the file has no epsilon of RMS norms.
    Spec(
        "cohere2moe-layer", "cohere2moe", 11, 32, 4, 2, 8, width=12, experts=5, experts_used=2, window=6, eps=1e-5,
        tied=True, attention_layers=(0, 3), router=Router(sigmoid=True), logit_scale=0.5, rope=Rope(base=5e4),
        shared_count=2, **(DENSE_FIRST | {"layers": 5, "shared_width": 24}),
    ),
    quantised(Type.F16, 8),
    quantised(Type.BF16, 8),
    quantised(Type.Q8_0, 8),
    quantised(Type.Q4_0, 28),
    quantised(Type.Q4_1, 14),
    quantised(Type.Q5_0, 79),
    quantised(Type.Q5_1, 17),
    quantised(Type.IQ4_NL, 27),
    quantised(Type.MXFP4, 18),
    quantised(Type.Q2_K, 3, **K_SHAPE),
    quantised(Type.Q3_K, 141, **K_SHAPE),
    quantised(Type.IQ4_XS, 15, **K_SHAPE),
    quantised(Type.Q4_K, 17, **K_SHAPE),
    quantised(Type.Q5_K, 46, **K_SHAPE),
    quantised(Type.Q6_K, 16, **K_SHAPE),
    # Factors of matrices and of experts; a shared expert; biases, which the factors must not multiply.
    quantised(Type.NVFP4, 1, "qwen2moe", head_dim=16, shared_width=64, tied=False),
    # As the published gpt-oss files are: MXFP4 experts, the rest in 8 bits.
    Spec(
        "quant-gpt-oss", "gpt-oss", 220, 64, 4, 2, 32, width=32, experts=6, experts_used=3, window=8,
        eps=1e-5, rope=Rope("yarn", base=1.5e5, factor=4.0, original_context=1024), type=Type.MXFP4,
        dense_type=Type.Q8_0, router_margin=0.05, greedy_margin=0.05,
    ),
    # Quantised parts of the latent attention.
    deepseek2(
        "quant-deepseek2", 633, latent(kv_rank=64, plain=32, rotated=16, value=32, q_rank=32),
        d_model=64, head_dim=48, width=32, dense_width=96, shared_width=32, experts=6, experts_used=3,
        rope=DEEPSEEK_YARN, router=Router(True, True, True, scale=1.5), type=Type.Q8_0,
        router_margin=0.02, greedy_margin=0.05,
    ),
]
# fmt: on
