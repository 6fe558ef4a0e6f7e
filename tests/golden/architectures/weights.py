"""Draws a golden model's weights and quantises them."""

import numpy as np
from gguf import GGML_QUANT_SIZES, LlamaFileType
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize, quantize

FLOAT_TYPES = (Type.F32, Type.F16, Type.BF16)
FILE_TYPES = {
    Type.F32: LlamaFileType.ALL_F32,
    Type.F16: LlamaFileType.MOSTLY_F16,
    Type.BF16: LlamaFileType.MOSTLY_BF16,
    Type.Q8_0: LlamaFileType.MOSTLY_Q8_0,
    Type.Q4_0: LlamaFileType.MOSTLY_Q4_0,
    Type.Q4_1: LlamaFileType.MOSTLY_Q4_1,
    Type.Q5_0: LlamaFileType.MOSTLY_Q5_0,
    Type.Q5_1: LlamaFileType.MOSTLY_Q5_1,
    Type.Q2_K: LlamaFileType.MOSTLY_Q2_K,
    Type.Q3_K: LlamaFileType.MOSTLY_Q3_K_M,
    Type.Q4_K: LlamaFileType.MOSTLY_Q4_K_M,
    Type.Q5_K: LlamaFileType.MOSTLY_Q5_K_M,
    Type.Q6_K: LlamaFileType.MOSTLY_Q6_K,
    Type.IQ4_NL: LlamaFileType.MOSTLY_IQ4_NL,
    Type.IQ4_XS: LlamaFileType.MOSTLY_IQ4_XS,
    Type.MXFP4: LlamaFileType.MOSTLY_MXFP4_MOE,
    Type.NVFP4: LlamaFileType.MOSTLY_NVFP4,
}
# The types that the gguf package reads but cannot make (from the format's definition): where a block has
# its float16 d, and for those whose dmin follows how many d as a minimum centre the values.
UNMADE_TYPES = {
    Type.Q2_K: (80, 1.5),
    Type.Q3_K: (108, None),
    Type.Q4_K: (0, 7.5),
    Type.Q5_K: (0, 15.5),
    Type.Q6_K: (208, None),
    Type.IQ4_NL: (0, None),
    Type.IQ4_XS: (0, None),
}


# NVFP4 matrices whose factor is 1.
UNSCALED = ("attn_k.weight", "ffn_up_shexp.weight")


def storage_type(spec, name, shape):
    """The model's type where the row length allows it, else Q8_0, as converters fall back."""
    kind = spec.type if spec.dense_type is None or "_exps." in name else spec.dense_type
    if kind == Type.NVFP4 and name == "token_embd.weight":
        return Type.Q8_0
    block, _ = GGML_QUANT_SIZES[kind]
    return kind if shape[-1] % block == 0 else Type.Q8_0


def random_blocks(rng, shape, kind, deviation):
    """Blocks of one of UNMADE_TYPES, every byte random but for the scales that set the magnitude.

    Any bytes are valid packed scales and quants, so all of their bits are exercised.
    """
    values, size = GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (int(np.prod(shape)) // values, size), dtype=np.uint8)
    spread = rng.uniform(0.5, 1.5, (len(blocks), 1))
    at, middle = UNMADE_TYPES[kind]

    def put_scales(unit):
        blocks[:, at : at + 2] = (unit * spread).astype("<f2").view(np.uint8)
        if middle is not None:
            blocks[:, at + 2 : at + 4] = (unit * middle * spread).astype("<f2").view(np.uint8)

    put_scales(1.0)
    put_scales(deviation / dequantize(blocks, kind).std())
    return blocks.reshape(*shape[:-1], -1)


def nvfp4_scale_name(name):
    return name.removesuffix(".weight") + ".scale"


def nvfp4_blocks(rng, shape, deviation, scaled):
    """Random blocks, whose 8-bit scales span four octaves, and the factor of each matrix that gives it the
    deviation. Not scaled: a factor of exactly 1, which converters do not write; the 8-bit scales are small then.
    """
    values, size = GGML_QUANT_SIZES[Type.NVFP4]
    count = shape[0] if len(shape) == 3 else 1
    blocks = rng.integers(0, 256, (count, int(np.prod(shape)) // values // count, size), dtype=np.uint8)
    lowest = 0x40 if scaled else 0
    blocks[:, :, :4] = rng.integers(lowest, lowest + 0x20, blocks[:, :, :4].shape)
    factors = np.ones(count, np.float32)
    if scaled:
        of = dequantize(blocks.reshape(-1, size), Type.NVFP4).reshape(count, -1).std(axis=1)
        factors = (deviation * rng.uniform(0.8, 1.2, count) / of).astype(np.float32)
    return blocks.reshape(*shape[:-1], -1), factors


def draw_values(rng, shape, role, deviation):
    if role == "norm":
        return rng.uniform(0.6, 1.4, shape).astype(np.float32)
    if role == "factors":  # of rotary frequencies: from 1 up to twice the deviation
        return np.sort(rng.uniform(1.0, 2 * deviation, shape)).astype(np.float32)
    return (deviation * rng.standard_normal(shape)).astype(np.float32)


def draw_tensors(arch, spec, seed):
    """{name: (stored array, type)} in the layout of transformers. Only matrices are quantised."""
    rng = np.random.default_rng(seed)
    stored, values = {}, {}
    for name, shape, role, deviation in arch.tensors(spec):
        kind = storage_type(spec, name, shape) if role == "matrix" else Type.F32
        if kind == Type.NVFP4:
            scaled = not name.endswith(UNSCALED)
            blocks, factors = nvfp4_blocks(rng, shape, deviation, scaled)
            stored[name] = blocks, kind
            if scaled:
                stored[nvfp4_scale_name(name)] = factors, Type.F32
        elif kind in UNMADE_TYPES:
            stored[name] = random_blocks(rng, shape, kind, deviation), kind
        else:
            values[name] = draw_values(rng, shape, role, deviation)
            stored[name] = values[name], kind
    arch.adjust(spec, values, rng)
    for name, array in values.items():
        kind = stored[name][1]
        stored[name] = array if kind == Type.F32 else quantize(array, kind), kind
    return stored


def exact_values(tensors):
    """{name: float64 array}: what the stored tensors stand for."""
    values = {n: dequantize(a, kind).astype(np.float64) for n, (a, kind) in tensors.items()}
    for name, (_, kind) in tensors.items():
        if kind == Type.NVFP4 and nvfp4_scale_name(name) in values:
            factors = values.pop(nvfp4_scale_name(name))
            values[name] *= factors.reshape(-1, 1, 1) if values[name].ndim == 3 else factors
    return values
