"""Answers as they come."""
from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any, AsyncIterator, Generic, Iterator, TypeVar

from ._native import ffi, lib
from .errors import Error, check

T = TypeVar("T")


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
    reasoning_tokens: int = 0
    prediction_tokens: int = 0
    predicted_tokens: int = 0


def text_of(pointer: Any) -> str:
    return "" if pointer == ffi.NULL else bytes(ffi.string(pointer)).decode(errors="replace")


def bytes_of(pointer: Any, n: int) -> str:
    return bytes(ffi.buffer(pointer, n)).decode(errors="replace") if n else ""


def id_of(value: int) -> int | None:
    return None if value < 0 else value


def nothing_yet(e: Error) -> bool:
    """The wait was too short. The other timeout, of `deadline_ms`, is the request's end."""
    return e.code == "timeout" and e.retry


def _result(r: Any) -> Result:
    return Result(
        text_of(lib.moed_reason_name(r.reason)), r.prompt_tokens, r.cached_tokens, r.generated_tokens, r.queue_ns * 1e-9,
        r.prefill_ns * 1e-9, r.decode_ns * 1e-9, r.resumed, id_of(r.end_token), id_of(r.stop_index), r.seed, r.reasoning_tokens,
        r.prediction_tokens, r.predicted_tokens,
    )


class Stream(Generic[T]):
    """A request: iterate over it, with `for` or `async for`. `result` is set at its end. Leaving it (`close`, the end of a `with`)
    cancels what still runs. owner: lives as long as the request, so that its session stays attached."""

    def __init__(self, owner: object, request: Any) -> None:
        self._owner = owner
        self._event = ffi.new("const struct moed_event **")
        self._error = ffi.new("struct moed_error *")
        self._request = request
        self._ready: deque[T] = deque()
        self.result: Result | None = None
        self._waiting: list[tuple[asyncio.AbstractEventLoop, int, asyncio.Event]] = []

    def _items(self, event: Any) -> list[T]:
        """What an event gives to the caller."""
        raise NotImplementedError

    def _ended(self) -> None:
        """The request is done; it has not been freed."""

    def _next(self, timeout_ms: int) -> T | None:
        """The next item; None: the answer has ended."""
        while not self._ready and self.result is None:
            if self._request is None:
                raise Error("cancelled", "the generation was closed", False)
            check(lib.moed_request_next(self._request, timeout_ms, self._event, self._error), self._error)
            event = self._event[0]
            self._ready.extend(self._items(event))
            if event.kind == lib.MOED_EVENT_DONE:
                self.result = _result(event.result)
                self._ended()
        return self._ready.popleft() if self._ready else None

    def __iter__(self) -> Iterator[T]:
        while True:
            try:
                item = self._next(200)
            except Error as e:  # in short waits, so that Ctrl-C is seen
                if not nothing_yet(e):
                    raise
                continue
            if item is None:
                return
            yield item

    async def __aiter__(self) -> AsyncIterator[T]:
        loop = asyncio.get_running_loop()
        fd = lib.moed_request_fd(self._request) if self._request is not None else -1
        while True:
            try:
                item = self._next(0)
            except Error as e:
                if not nothing_yet(e):
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
            if item is None:
                return
            yield item

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

    def __enter__(self: S) -> S:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_request", None) is not None:
            self.close()


S = TypeVar("S", bound=Stream[Any])
