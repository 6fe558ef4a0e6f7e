"""Attention of a prompt on a GPU, without a GPU: the least time of the kernels that compute it, by the definition
(attention_tile.cu) and by tensor cores (attention_many.cu, attention_latent.cu). gpu_static.py prints it.

    by the definition   a fused operation for each query, position and dimension of keys and of values, at the rate of the
                        float32 units; loads and exponentials come on top
    by tensor cores     the loop over positions as compiled: its instructions at the rate at which they issue, or its matrix
                        instructions at the tensor cores' rate, whichever is longer

Both are bounds: memory, barriers and the parts of tiles that no query sees are left out.
"""
import collections
import re

from gpu_layer import GPUS, SCHEDULERS, TENSOR, head, row

# Lanes of a scheduler's float32 units (Programming Guide, "Arithmetic Instructions").
FLOAT_LANES = {75: 16, 80: 16, 86: 32, 89: 32, 90: 32, 120: 32}
MMA_PRODUCTS = 16 * 8 * 16  # of m16n8k16
WARP_QUERIES = 16  # attention_many.cuh

# layers: how many with these heads; window 0: none.
Attention = collections.namedtuple("Attention", "layers heads keys values window latent", defaults=(0, False))
# From the models' config.json.
MODELS = {
    "Qwen3-30B-A3B": [Attention(48, 32, 128, 128)],
    "Qwen3.6-35B-A3B": [Attention(10, 16, 256, 256)],
    "Gemma-4-26B-A4B": [Attention(25, 16, 256, 256, 1024), Attention(5, 16, 512, 512)],
    "GLM-4.7-Flash": [Attention(47, 20, 576, 512, latent=True)],
    "DeepSeek-V3": [Attention(61, 128, 576, 512, latent=True)],
}
TOKENS = 4096
KERNELS = r"attend_(many_tile|latent_tile)<unsigned short"


def pairs(a, tokens):
    """Of queries and positions that they see."""
    return a.layers * a.heads * sum(min(t, a.window or t) for t in range(1, tokens + 1))


def defined_ms(a, gpu, tokens):
    operations = pairs(a, tokens) * (a.keys + a.values)
    return operations / (FLOAT_LANES[gpu.arch] * SCHEDULERS * gpu.multiprocessors * gpu.ghz * 1e6)


def loop_of(a, loops):
    """loops: by the kernel's name. Returns the loop, the warps that share queries, and a step's positions."""
    if a.latent:
        return loops["attend_latent_tile<unsigned short>"], 4, 32
    dim = next(d for d in (64, 128, 256, 512) if d >= max(a.keys, a.values))
    return loops[f"attend_many_tile<unsigned short, {dim}>"], max(1, dim // 128), 64 if dim <= 256 else 32


def tensor_ms(a, gpu, loops, tokens):
    loop, parts, step = loop_of(a, loops)
    issued = loop.instructions + loop.floats * (32 // FLOAT_LANES[gpu.arch] - 1)
    matrix = loop.mma * MMA_PRODUCTS / (TENSOR[gpu.arch][1] / SCHEDULERS)
    steps = pairs(a, tokens) / (WARP_QUERIES * step) * parts
    return steps * max(issued, matrix) / (SCHEDULERS * gpu.multiprocessors * gpu.ghz * 1e6)


def table(loops):
    """loops: by architecture, then by the kernel's name. Lines of markdown."""
    lines = head([f"attention of {TOKENS} tokens, ms at least", *(f"{m}: definition | tensor cores | ratio" for m in MODELS)])
    lines[1] = "|---" * (1 + 3 * len(MODELS)) + "|"
    for gpu in (g for g in GPUS if g.arch in loops and g.arch >= 80):
        cells = [gpu.name]
        for layers in MODELS.values():
            before = sum(defined_ms(a, gpu, TOKENS) for a in layers)
            after = sum(tensor_ms(a, gpu, loops[gpu.arch], TOKENS) for a in layers)
            cells += [f"{ms:.0f}" if ms >= 100 else f"{ms:.1f}" for ms in (before, after)] + [f"{before / after:.1f}"]
        lines.append(row(cells))
    return lines


def loops_of(kernels):
    """kernels: (name, architecture, loop)."""
    loops = {}
    for name, arch, loop in kernels:
        if loop and re.match(KERNELS, name):
            loops.setdefault(arch, {})[name] = loop
    return loops
