"""Routing traces (docs/traces.md) as numpy arrays, mapped from the file."""
from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from typing import Any, Iterator

import numpy as np

_SHAPE, _LAYERS, _ROUTERS, _EMBEDDINGS, _SEQUENCE, _END = range(1, 7)
_GATE, _HAS_EMBEDDINGS, _HIDDEN, _HAS_ROUTERS = 1, 2, 4, 8


@dataclass(frozen=True)
class Sequence:
    """A document or conversation; L: the layers with experts."""

    tokens: Any  # [n] uint32
    n_prompt: int  # of them were computed together
    selected: Any  # [n][L][experts used] uint8 or uint16, the first choice first
    gate: Any | None  # [n][L][experts] uint8; Trace.probabilities turns it into probabilities
    hidden_at: Any  # [h] uint32: the positions with gate inputs
    hidden: Any | None  # [h][L][d_model] float16


class Trace:
    """A trace file. Every size is checked against the file; a broken one raises ValueError with the byte's offset."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        with open(path, "rb") as f:
            try:
                self._map = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError:
                raise ValueError(f"{path}: the file is empty") from None
        self._path = path
        if self._map[:12] != b"moedtrac" + struct.pack("<I", 1):
            raise ValueError(f"{path}: not a trace of version 1")
        self._sequences: list[tuple[int, int]] = []
        self._ended = False
        self._embeddings: list[tuple[int, int]] = []
        at = 64
        while not self._ended:
            at = self._read_chunk(at)
        if at != len(self._map):
            self._refuse(min(at, len(self._map)), "the file is longer or shorter than its chunks")

    def _refuse(self, at: int, what: str) -> None:
        raise ValueError(f"{self._path}: byte {at}: {what}")

    def _unpack(self, form: str, at: int, end: int) -> tuple[Any, ...]:
        if at + struct.calcsize(form) > end:
            self._refuse(at, "the file is cut off")
        return struct.unpack_from(form, self._map, at)

    def _read_chunk(self, at: int) -> int:
        kind, zero, size = self._unpack("<IIQ", at, len(self._map))
        start, end = at + 16, at + 16 + int(size)
        if zero or end > len(self._map):
            self._refuse(at, "the chunk is longer than the file")
        if kind == _SHAPE:
            self._read_shape(start, end)
        elif kind == _SEQUENCE and hasattr(self, "n_experts"):
            self._sequences.append((start, end))
        elif kind == _EMBEDDINGS:
            self._embeddings.append((start, end))
        elif kind == _END:
            (n,) = self._unpack("<Q", start, end)
            if n != len(self._sequences):
                self._refuse(start, f"the file has {len(self._sequences)} sequences, not {n}")
            self._ended = True
        elif kind not in (_LAYERS, _ROUTERS):
            self._refuse(at, f"a chunk of kind {kind}")
        return (end + 63) // 64 * 64

    def _read_shape(self, at: int, end: int) -> None:
        self.n_layers, self.first_layer, self.n_experts, self.n_used, self.d_model, self._has = self._unpack("<6I", at, end)
        (name,) = self._unpack("<96s", at + 56, end)
        self.model = name.split(b"\0")[0].decode(errors="replace")
        if not (0 <= self.first_layer < self.n_layers <= 1024 and 0 < self.n_used <= self.n_experts <= 4096):
            self._refuse(at, "a shape that no model has")

    @property
    def layers(self) -> int:
        """The layers with experts."""
        return int(self.n_layers - self.first_layer)

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int) -> Sequence:
        at, end = self._sequences[i]
        n, n_prompt, n_hidden, zero = self._unpack("<4I", at, end)
        if zero or n_prompt > n or n == 0 or (n_hidden and not self._has & _HIDDEN):
            self._refuse(at, "a sequence that no writer writes")
        reader = _Reader(self, at + 16, end)
        choice = np.uint8 if self.n_experts <= 256 else np.dtype("<u2")
        tokens = reader.take(np.dtype("<u4"), n)
        hidden_at = reader.take(np.dtype("<u4"), n_hidden)
        hidden = reader.take(np.dtype("<f2"), n_hidden, self.layers, self.d_model) if n_hidden else None
        selected = reader.take(choice, n, self.layers, self.n_used)
        gate = reader.take(np.uint8, n, self.layers, self.n_experts) if self._has & _GATE else None
        if selected.max() >= self.n_experts:
            self._refuse(at, f"an expert of {self.n_experts} has the number {selected.max()}")
        return Sequence(tokens, n_prompt, selected, gate, hidden_at, hidden)

    @staticmethod
    def probabilities(gate: Any) -> Any:
        """The gate's probabilities as float32: 2^(-q/16), and 0 for 255."""
        table = np.exp2(-np.arange(256, dtype=np.float32) / 16)
        table[255] = 0
        return table[gate]

    def embeddings(self) -> tuple[Any, Any]:
        """(token ids, [n][d_model] float16); both empty where the trace has none."""
        ids, rows = [np.empty(0, np.uint32)], [np.empty((0, self.d_model), np.float16)]
        for at, end in self._embeddings:
            (n,) = self._unpack("<I", at, end)
            reader = _Reader(self, at + 4, end)
            ids.append(reader.take(np.dtype("<u4"), n))
            rows.append(reader.take(np.dtype("<f2"), n, self.d_model))
        return np.concatenate(ids), np.concatenate(rows)


class _Reader:
    """Arrays one after the other in a chunk."""

    def __init__(self, trace: Trace, at: int, end: int) -> None:
        self._trace, self._at, self._end = trace, at, end

    def take(self, kind: Any, *shape: int) -> Any:
        count = int(np.prod(shape, dtype=np.int64))
        size = count * np.dtype(kind).itemsize
        if self._at + size > self._end:
            self._trace._refuse(self._at, "the file is cut off")  # pylint: disable=protected-access
        array = np.frombuffer(self._trace._map, kind, count, self._at).reshape(shape)  # pylint: disable=protected-access
        self._at += size
        return array
