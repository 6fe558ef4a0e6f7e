"""Sessions and what they generate."""
from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import Any, AsyncIterator, Iterator, Sequence

from ._native import ffi, lib, new
from .errors import Error, check
from .options import Options, Prompt


@dataclass(frozen=True)
class Piece:
    """A part of an answer: one token or several, and their text (empty while a character is incomplete)."""

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...] = ()
    top: tuple[tuple[tuple[int, float], ...], ...] = ()  # for each token the most probable (id, log-probability)


@dataclass(frozen=True)
class Result:
    """How an answer ended; moed.h, struct moed_result."""

    reason: str
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    queue_s: float
    prefill_s: float
    decode_s: float
    resumed: int
    end_token: int | None
    stop_index: int | None
    seed: int


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


def _text(pointer: Any) -> str:
    return "" if pointer == ffi.NULL else ffi.string(pointer).decode(errors="replace")


def _id(value: int) -> int | None:
    return None if value < 0 else value


def _piece(event: Any) -> Piece:
    n, top = event.logprob_count, event.top_count
    tops = tuple(tuple((event.top_tokens[i * top + k], event.top_logprobs[i * top + k]) for k in range(top)) for i in range(n))
    return Piece(
        ffi.buffer(event.text, event.text_bytes)[:].decode(errors="replace") if event.text_bytes else "",
        tuple(event.tokens[0 : event.token_count]) if event.token_count else (),
        tuple(event.logprobs[0:n]) if n else (),
        tops if top else (),
    )


def _result(r: Any) -> Result:
    return Result(
        _text(lib.moed_reason_name(r.reason)), r.prompt_tokens, r.cached_tokens, r.generated_tokens, r.queue_ns * 1e-9,
        r.prefill_ns * 1e-9, r.decode_ns * 1e-9, r.resumed, _id(r.end_token), _id(r.stop_index), r.seed,
    )


class Generation:
    """An answer as it comes: iterate over it, with `for` or `async for`. `result` is set at its end. Leaving it (`close`, the end
    of a `with`) cancels what still runs."""

    def __init__(self, session: "Session", options: Options) -> None:
        self._session = session  # keeps it attached
        self._event = ffi.new("const struct moed_event **")
        self._error = ffi.new("struct moed_error *")
        self.result: Result | None = None
        self._waiting: list[tuple[asyncio.AbstractEventLoop, int, asyncio.Event]] = []
        request = ffi.new("struct moed_request **")
        check(lib.moed_generate_start(session._handle(), options.struct, request, self._error), self._error)
        self._request = request[0]

    def _next(self, timeout_ms: int) -> Piece | None:
        """The next piece; None: the answer has ended."""
        while self.result is None:
            if self._request is None:
                raise Error("cancelled", "the generation was closed", False)
            check(lib.moed_request_next(self._request, timeout_ms, self._event, self._error), self._error)
            event = self._event[0]
            if event.kind == lib.MOED_EVENT_TOKENS:
                return _piece(event)
            if event.kind == lib.MOED_EVENT_DONE:
                self.result = _result(event.result)
        return None

    def __iter__(self) -> Iterator[Piece]:
        while True:
            try:
                piece = self._next(200)
            except Error as e:  # in short waits, so that Ctrl-C is seen
                if e.code != "timeout":
                    raise
                continue
            if piece is None:
                return
            yield piece

    async def __aiter__(self) -> AsyncIterator[Piece]:
        loop = asyncio.get_running_loop()
        fd = lib.moed_request_fd(self._request)
        while True:
            try:
                piece = self._next(0)
            except Error as e:
                if e.code != "timeout":
                    raise
                ready = asyncio.Event()
                loop.add_reader(fd, ready.set)
                self._waiting.append((loop, fd, ready))
                try:
                    await ready.wait()
                finally:
                    if (loop, fd, ready) in self._waiting:  # not closed since
                        self._waiting.remove((loop, fd, ready))
                        loop.remove_reader(fd)
                continue
            if piece is None:
                return
            yield piece

    def cancel(self) -> None:
        """Stops the answer: what was generated still comes, then its end with the reason "cancelled". Any thread may call it."""
        if self._request is not None:
            lib.moed_request_cancel(self._request)

    def close(self) -> None:
        """Ends it. What iterates over it raises an Error then. Call it from the thread that iterates, or from its event loop."""
        for loop, fd, ready in self._waiting:  # the descriptor is closed below, and its number used again
            loop.remove_reader(fd)
            ready.set()
        self._waiting.clear()
        if self._request is not None:
            lib.moed_request_free(self._request)
        self._request = None

    def __enter__(self) -> "Generation":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_request", None) is not None:
            self.close()


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
    def model(self) -> Model:
        out, error = ffi.new("struct moed_model **"), ffi.new("struct moed_error *")
        check(lib.moed_model_get(self._handle(), out, error), error)
        m = out[0]
        try:
            return Model(
                _text(m.name), _text(m.architecture), _text(m.path), m.parameters, m.file_bytes, m.layers, m.dense_layers, m.d_model,
                m.experts, m.experts_used, m.vocab, m.context, m.context_trained, _text(m.device), _id(m.bos), _id(m.eos),
                tuple(m.end_tokens[0 : m.end_token_count]) if m.end_token_count else (), _text(m.chat_template),
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
        top_logprobs, priority ("batch"), deadline_ms; the parameters of docs/sampling.md by their names in struct moed_sampling (temperature, top_k, top_p, min_p,
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
        return _text(text[0])
    finally:
        lib.moed_free(text[0])
