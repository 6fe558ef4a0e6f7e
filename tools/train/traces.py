"""Reads routing traces, the files of `moed profile` (docs/traces.md has the layout)."""
import dataclasses
import mmap
import struct

import numpy as np

GATE, EMBEDDINGS, HIDDEN, ROUTERS = 1, 2, 4, 8


@dataclasses.dataclass
class Sequence:
    tokens: np.ndarray     # [tokens] ids
    positions: np.ndarray  # [n] of the tokens with gate inputs
    hidden: np.ndarray     # [n][layers][width] their gate inputs, halves
    selected: np.ndarray   # [tokens][layers][used]


class Trace:
    """layers: those with experts. embeddings: id -> [width] halves."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self.bytes = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        if self.bytes[:8] != b"moedtrac" or struct.unpack_from("<I", self.bytes, 8) != (1,):
            raise SystemExit(f"{path}: not a routing trace of version 1")
        self.sequences, self.embeddings = [], {}
        at, kind = 64, 0
        while kind != 6:
            kind, _, size = struct.unpack_from("<IIQ", self.bytes, at)
            {1: self.shape, 2: self.segments, 3: self.matrices, 4: self.embedding,
             5: self.sequence, 6: lambda at: None}[kind](at + 16)
            at = (at + 16 + size + 63) // 64 * 64

    def numbers(self, at, kind, *shape):
        count = int(np.prod(shape))
        return np.frombuffer(self.bytes, kind, count, at).reshape(shape)

    def shape(self, at):
        (self.n_layers, self.first_layer, self.experts, self.used, self.width,
         self.has) = struct.unpack_from("<6I", self.bytes, at)
        self.layers = self.n_layers - self.first_layer
        self.model = self.bytes[at + 56:at + 152]

    def segments(self, at):
        self.parts = [struct.unpack_from("<I", self.bytes, at + 16 * n + 12)[0] for n in range(self.layers)]

    def matrices(self, at):
        """routers: [layers][experts][width]; their biases are skipped."""
        self.routers = []
        for parts in self.parts:
            self.routers.append(self.numbers(at, "<f4", self.experts, self.width))
            at += 4 * self.experts * (self.width + bin(parts).count("1"))

    def embedding(self, at):
        count, = struct.unpack_from("<I", self.bytes, at)
        ids = self.numbers(at + 4, "<u4", count)
        rows = self.numbers(at + 4 + 4 * count, "<f2", count, self.width)
        self.embeddings.update(zip(ids.tolist(), rows))

    def sequence(self, at):
        tokens, _, hidden, _ = struct.unpack_from("<4I", self.bytes, at)
        ids = self.numbers(at + 16, "<u4", tokens)
        at += 16 + 4 * tokens
        positions = self.numbers(at, "<u4", hidden)
        at += 4 * hidden
        inputs = self.numbers(at, "<f2", hidden, self.layers, self.width)
        at += inputs.nbytes
        kind = "<u1" if self.experts <= 256 else "<u2"
        self.sequences.append(Sequence(ids, positions, inputs,
                                       self.numbers(at, kind, tokens, self.layers, self.used)))
