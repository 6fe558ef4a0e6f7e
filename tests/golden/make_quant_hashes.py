"""Writes tests/unit/quant_hashes.inc: what the gguf package makes of random blocks of the IQ types.

usage: make_quant_hashes.py FILE
"""

import sys

import numpy as np
from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize

BLOCKS = 512
KINDS = (
    Type.NVFP4,
    Type.IQ3_S, Type.IQ3_XXS, Type.IQ2_S, Type.IQ2_XS, Type.IQ2_XXS, Type.IQ1_S, Type.IQ1_M)
# A byte that has the upper bit of a half's exponent: cleared, the half is finite.
EXPONENT_AT = {Type.IQ1_M: 55}
MASK = (1 << 64) - 1


def random_bytes(count):
    """xorshift64*, the upper 32 bits' lowest byte, as random_u64 of tests/unit/kernel_cases.h."""
    state, out = 1, bytearray()
    for _ in range(count):
        state ^= state << 13 & MASK
        state ^= state >> 7
        state ^= state << 17 & MASK
        out.append((state * 0x2545F4914F6CDD1D & MASK) >> 32 & 255)
    return np.frombuffer(bytes(out), np.uint8)


def fnv(data):
    """FNV-1a of 64 bits."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & MASK
    return value


def main():
    with open(sys.argv[1], "w") as out:
        out.write(
            "/* FNV-1a hashes of the float32 values of 512 random blocks, as the gguf package\n"
            " * (gguf.quants) reads them. tests/golden/make_quant_hashes.py wrote them. */\n"
        )
        for kind in KINDS:
            _, size = GGML_QUANT_SIZES[kind]
            blocks = random_bytes(BLOCKS * size).reshape(BLOCKS, size).copy()
            if kind != Type.NVFP4:
                blocks[:, EXPONENT_AT.get(kind, 1)] &= 0xBF
            values = dequantize(blocks, kind).astype("<f4")
            out.write(f"{{TENSOR_{kind.name}, 0x{fnv(values.tobytes()):016x}}},\n")


if __name__ == "__main__":
    main()
