"""Writes lib/quant/grid_codes.h, the codebooks of the IQ types, from the gguf package's tables.

usage: make_grids.py FILE
"""

import sys

import gguf.quants as quants

HEADER = """/* The codebooks ("grids") of the IQ types: the points of 4 or 8 values that a file's quants are
 * indices of. They are constants of the format: ggml's ggml-common.h has them, and so has the gguf
 * package of PyPI (gguf/quants.py), from which tests/golden/make_grids.py wrote this file.
 *
 * X(code) for each point in the file's order. Value k of a point has 2 bits of the code from bit 2k
 * (IQ1, IQ2: 8 values) or 3 bits from bit 3k (IQ3: 4 values): the number of its level. The levels:
 * IQ1 -1, 0, 1; IQ2 8, 25, 43; IQ3_XXS 4, 12, 20, 28, 36, 44, 52, 62; IQ3_S 1, 3, ... 15. */
#ifndef MOED_QUANT_GRID_CODES_H
#define MOED_QUANT_GRID_CODES_H

/* clang-format off */
"""
GRIDS = (
    ("IQ2_XXS", quants.IQ2_XXS, 2),
    ("IQ2_XS", quants.IQ2_XS, 2),
    ("IQ2_S", quants.IQ2_S, 2),
    ("IQ3_XXS", quants.IQ3_XXS, 3),
    ("IQ3_S", quants.IQ3_S, 3),
    ("IQ1", quants.IQ1_S, 2),
)


def codes(kind, bits):
    kind.init_grid()
    level = {float(value): i for i, value in enumerate(kind.grid_map)}
    points = kind.grid.reshape(kind.grid_shape)
    return [sum(level[float(v)] << bits * k for k, v in enumerate(point)) for point in points]


def main():
    with open(sys.argv[1], "w") as out:
        out.write(HEADER)
        for name, kind, bits in GRIDS:
            words = [f"X(0x{code:04x})" for code in codes(kind, bits)]
            lines = [" ".join(words[i : i + 8]) for i in range(0, len(words), 8)]
            out.write(f"#define GRID_{name}(X) \\\n    " + " \\\n    ".join(lines) + "\n\n")
        out.write("/* clang-format on */\n\n#endif\n")


if __name__ == "__main__":
    main()
