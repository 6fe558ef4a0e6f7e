"""Keyword arguments into struct moed_generate_options."""
from __future__ import annotations

import json
from typing import Any, Sequence, Union

from ._native import ffi, lib, new

Prompt = Union[str, bytes, Sequence[int]]

_SAMPLING = {name for name, _ in ffi.typeof("struct moed_sampling").fields} - {"size", "bias", "bias_count", "dry_breakers", "dry_breaker_count", "order"}
_PLAIN = {"parse_special", "ignore_end", "max_tokens", "min_tokens", "special_text", "logprobs", "top_logprobs", "progress", "deadline_ms", "cache_salt", "client", "max_drafts", "no_drafts"}
_GRAMMARS = {"json_schema": "MOED_GRAMMAR_JSON_SCHEMA", "gbnf": "MOED_GRAMMAR_GBNF", "regex": "MOED_GRAMMAR_REGEX", "choices": "MOED_GRAMMAR_CHOICES"}
_PRIORITIES = {"interactive": "MOED_PRIORITY_INTERACTIVE", "batch": "MOED_PRIORITY_BATCH"}


class Options:
    """The C structure, and the memory that it points into."""

    def __init__(self, prompt: Prompt | None, arguments: dict[str, Any]) -> None:
        self._kept: list[Any] = []
        self.struct = new("moed_generate_options")
        self._sampling = new("moed_sampling")
        lib.moed_sampling_init(self._sampling, ffi.sizeof("struct moed_sampling"))
        self.struct.sampling = self._sampling
        if prompt is not None:
            self._set_prompt(prompt)
        grammars = [name for name in _GRAMMARS if arguments.get(name) is not None]
        if len(grammars) > 1:
            raise TypeError(f"{grammars[0]} and {grammars[1]} exclude each other")
        for name, value in arguments.items():
            if value is None:
                continue
            try:
                self._set(name, value)
            except (OverflowError, TypeError, ValueError) as error:
                raise error if name in str(error) else TypeError(f"{name}: {error}") from error

    def _keep(self, value: Any) -> Any:
        self._kept.append(value)
        return value

    def _bytes(self, value: str | bytes) -> tuple[Any, int]:
        data = value.encode() if isinstance(value, str) else bytes(value)
        return self._keep(ffi.new("char[]", data)), len(data)

    def _set_prompt(self, prompt: Prompt) -> None:
        if isinstance(prompt, (str, bytes)):
            self.struct.prompt, self.struct.prompt_bytes = self._bytes(prompt)
        else:
            self.struct.tokens = self._keep(ffi.new("uint32_t[]", list(prompt)))
            self.struct.token_count = len(prompt)

    def _texts(self, texts: Sequence[str | bytes]) -> tuple[Any, int]:
        array = self._keep(ffi.new("struct moed_bytes[]", len(texts)))
        for i, text in enumerate(texts):
            array[i].data, array[i].len = self._bytes(text)
        return array, len(texts)

    def _set(self, name: str, value: Any) -> None:
        o = self.struct
        if name in _SAMPLING:
            setattr(self._sampling, name, value)
        elif name in _PLAIN:
            setattr(o, name, value)
        elif name == "stop":
            o.stop, o.stop_count = self._texts([value] if isinstance(value, (str, bytes)) else value)
        elif name == "prediction":
            o.prediction = self._keep(ffi.new("uint32_t[]", list(value)))
            o.prediction_count = len(value)
        elif name == "stop_tokens":
            o.stop_tokens = self._keep(ffi.new("uint32_t[]", list(value)))
            o.stop_token_count = len(value)
        elif name == "sampler_order":
            self._sampling.order = self._bytes(value)[0]
        elif name == "priority":
            if value not in _PRIORITIES:
                raise TypeError(f"priority is {' or '.join(_PRIORITIES)}, not {value!r}")
            o.priority = getattr(lib, _PRIORITIES[value])
        elif name == "logit_bias":
            self._set_bias(value)
        elif name in _GRAMMARS:
            self._set_grammar(name, value)
        else:
            raise TypeError(f"there is no option {name!r}")

    def _set_bias(self, biases: dict[int | str, float]) -> None:
        array = self._keep(ffi.new("struct moed_bias[]", len(biases)))
        for place, (token, bias) in zip(array, biases.items()):
            place.bias = bias
            if isinstance(token, str):
                place.text.data, place.text.len = self._bytes(token)
            else:
                place.token = token
        self._sampling.bias, self._sampling.bias_count = array, len(biases)

    def _set_grammar(self, name: str, value: Any) -> None:
        grammar = self._keep(new("moed_grammar"))
        grammar.kind = getattr(lib, _GRAMMARS[name])
        text = value if isinstance(value, (str, bytes)) else json.dumps(value)
        grammar.text, grammar.text_bytes = self._bytes(text)
        self.struct.grammar = grammar
