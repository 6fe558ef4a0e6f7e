"""Sessions and what they generate."""
from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Sequence

from ._native import ffi, lib, new
from .errors import Error, check
from .options import Options, Prompt
from .stream import Result, Stream, bytes_of, id_of, text_of


@dataclass(frozen=True)
class Piece:
    """A part of an answer: one token or several, and their text (empty while a character is incomplete)."""

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...] = ()
    top: tuple[tuple[tuple[int, float], ...], ...] = ()  # for each token the most probable (id, log-probability)


@dataclass(frozen=True)
class Answer:
    """A whole answer."""

    text: str
    tokens: tuple[int, ...]
    result: Result
    logprobs: tuple[float, ...] = ()


@dataclass(frozen=True)
class Model:
    """The model's facts; moed.h, struct moed_model."""

    name: str
    architecture: str
    path: str
    parameters: int
    file_bytes: int
    layers: int
    dense_layers: int
    d_model: int
    experts: int
    experts_used: int
    vocab: int
    context: int
    context_trained: int
    device: str
    bos: int | None
    eos: int | None
    end_tokens: tuple[int, ...] = field(default=())
    chat_template: str = ""


def _piece(event: Any) -> Piece:
    n, top = event.logprob_count, event.top_count
    tops = tuple(tuple((event.top_tokens[i * top + k], event.top_logprobs[i * top + k]) for k in range(top)) for i in range(n))
    return Piece(
        bytes_of(event.text, event.text_bytes),
        tuple(event.tokens[0 : event.token_count]) if event.token_count else (),
        tuple(event.logprobs[0:n]) if n else (),
        tops if top else (),
    )


class Generation(Stream[Piece]):
    """An answer as it comes, in pieces."""

    def __init__(self, session: "Session", options: Options) -> None:
        request, error = ffi.new("struct moed_request **"), ffi.new("struct moed_error *")
        self._request = None
        check(lib.moed_generate_start(session._handle(), options.struct, request, error), error)
        super().__init__(session, request[0])

    def _items(self, event: Any) -> list[Piece]:
        return [_piece(event)] if event.kind == lib.MOED_EVENT_TOKENS else []


class Session:
    """An attachment to a running deployment. Any number of threads may use it; `close` must be its last call."""

    def __init__(self, deployment: str | None = None, timeout_s: float = 30.0, resume_s: float | None = None) -> None:
        options, error = new("moed_attach_options"), ffi.new("struct moed_error *")
        name = ffi.new("char[]", deployment.encode()) if deployment is not None else ffi.NULL
        client = ffi.new("char[]", b"python")
        options.deployment, options.client = name, client
        options.timeout_ms = max(1, math.ceil(timeout_s * 1000))
        options.resume_ms = 0 if resume_s is None else (math.ceil(resume_s * 1000) or -1)
        out = ffi.new("struct moed_session **")
        self._session: Any = None
        check(lib.moed_attach(options, out, error), error)
        self._session = out[0]

    def _handle(self) -> Any:
        if self._session is None:
            raise Error("cancelled", "the session is closed", False)
        return self._session

    @property
    def alive(self) -> bool:
        """False once the session has ended: attach again."""
        return self._session is not None and bool(lib.moed_session_alive(self._session))

    @property
    def replaced(self) -> bool:
        """True once the deployment has another model than this session (`moed reload`): attach again for new requests."""
        return self._session is not None and bool(lib.moed_session_replaced(self._session))

    @property
    def model(self) -> Model:
        out, error = ffi.new("struct moed_model **"), ffi.new("struct moed_error *")
        check(lib.moed_model_get(self._handle(), out, error), error)
        m = out[0]
        try:
            return Model(
                text_of(m.name), text_of(m.architecture), text_of(m.path), m.parameters, m.file_bytes, m.layers, m.dense_layers, m.d_model,
                m.experts, m.experts_used, m.vocab, m.context, m.context_trained, text_of(m.device), id_of(m.bos), id_of(m.eos),
                tuple(m.end_tokens[0 : m.end_token_count]) if m.end_token_count else (), text_of(m.chat_template),
            )
        finally:
            lib.moed_model_free(m)

    def tokenize(self, text: str | bytes, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        data = text.encode() if isinstance(text, str) else bytes(text)
        flags = (lib.MOED_ADD_SPECIAL if add_special else 0) | (lib.MOED_PARSE_SPECIAL if parse_special else 0)
        tokens, n, error = ffi.new("uint32_t **"), ffi.new("size_t *"), ffi.new("struct moed_error *")
        check(lib.moed_tokenize(self._handle(), data, len(data), flags, tokens, n, error), error)
        try:
            return list(tokens[0][0 : n[0]]) if n[0] else []
        finally:
            lib.moed_free(tokens[0])

    def detokenize(self, tokens: Sequence[int], *, special: bool = False) -> bytes:
        text, n, error = ffi.new("char **"), ffi.new("size_t *"), ffi.new("struct moed_error *")
        check(lib.moed_detokenize(self._handle(), ffi.new("uint32_t[]", list(tokens)), len(tokens), special, text, n, error), error)
        try:
            return bytes(ffi.buffer(text[0], n[0]))
        finally:
            lib.moed_free(text[0])

    def generate(self, prompt: Prompt, **options: Any) -> Generation:
        """Starts an answer to a text, or to token ids.

        Options: max_tokens, min_tokens, stop (a text or several), stop_tokens, ignore_end, parse_special, special_text, logprobs,
        top_logprobs, priority ("batch"), deadline_ms, cache_salt, client, max_drafts, no_drafts; the parameters of docs/sampling.md by their names in struct moed_sampling (temperature, top_k, top_p, min_p,
        seed, ...), sampler_order, logit_bias ({id or text: bias}); one of json_schema (a dict, or text), gbnf, regex, choices (a list
        of texts). What is left out has the model's default."""
        return Generation(self, Options(prompt, options))

    def complete(self, prompt: Prompt, **options: Any) -> Answer:
        """The whole answer to a prompt. Options as `generate`."""
        with self.generate(prompt, **options) as generation:
            pieces = list(generation)
            assert generation.result is not None
            return Answer(
                "".join(p.text for p in pieces), tuple(t for p in pieces for t in p.tokens), generation.result,
                tuple(x for p in pieces for x in p.logprobs),
            )

    def close(self) -> None:
        if self._session is not None:
            lib.moed_detach(self._session)
        self._session = None

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_session", None) is not None:
            self.close()


def metrics(process: str, deployment: str | None = None) -> str:
    """The metrics of a process ("memd", "worker", "cpuexec") as Prometheus' text."""
    text, error = ffi.new("char **"), ffi.new("struct moed_error *")
    name = ffi.new("char[]", deployment.encode()) if deployment is not None else ffi.NULL
    check(lib.moed_metrics(name, process.encode(), text, error), error)
    try:
        return text_of(text[0])
    finally:
        lib.moed_free(text[0])
