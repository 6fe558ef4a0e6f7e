"""Reads a routing trace (docs/traces.md): the shape, the segments and the choices."""
import struct
from dataclasses import dataclass

import numpy as np

SHAPE, LAYERS, SEQUENCE, END = 1, 2, 5, 6


@dataclass
class Sequence:
    n_tokens: int
    n_prompt: int
    selected: np.ndarray  # [n_tokens][layers with experts][n_used]


@dataclass
class Trace:
    n_layers: int
    first_layer: int
    n_experts: int
    n_used: int
    dense_bytes: int
    segment_bytes: int  # the same in all layers
    n_segments: int
    sequences: list


def chunks(data):
    at = 64
    while at < len(data):
        kind, _, size = struct.unpack_from("<IIQ", data, at)
        yield kind, memoryview(data)[at + 16 : at + 16 + size]
        at = (at + 16 + size + 63) // 64 * 64


def read_sequence(payload, shape):
    n_layers, n_experts, n_used, d_model = shape
    n_tokens, n_prompt, n_hidden = struct.unpack_from("<III", payload)
    at = 16 + 4 * n_tokens + 4 * n_hidden + 2 * n_hidden * n_layers * d_model
    choice = np.dtype("u1") if n_experts <= 256 else np.dtype("<u2")
    selected = np.frombuffer(payload, choice, n_tokens * n_layers * n_used, at)
    return Sequence(n_tokens, n_prompt, selected.reshape(n_tokens, n_layers, n_used))


def read_trace(path):
    with open(path, "rb") as f:
        data = f.read()
    assert data[:8] == b"moedtrac" and struct.unpack_from("<I", data, 8)[0] == 1
    trace = shape = None
    for kind, payload in chunks(data):
        if kind == SHAPE:
            n_layers, first, n_experts, n_used, d_model, _, dense = struct.unpack_from("<6IQ", payload)
            shape = (n_layers - first, n_experts, n_used, d_model)
            trace = Trace(n_layers, first, n_experts, n_used, dense, 0, 0, [])
        elif kind == LAYERS:
            layers = {struct.unpack_from("<QI", payload, at) for at in range(0, len(payload), 16)}
            assert len(layers) == 1, "the simulator knows one size of segment"
            trace.segment_bytes, trace.n_segments = layers.pop()
        elif kind == SEQUENCE:
            trace.sequences.append(read_sequence(payload, shape))
        elif kind == END:
            assert struct.unpack_from("<Q", payload)[0] == len(trace.sequences)
    return trace
