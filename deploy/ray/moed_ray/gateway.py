"""Where clients connect: passes a request to a node, and to another one where the first cannot answer.

Nothing is lost of a request until its reply has begun. A whole answer is passed on when it is complete, so a dead node costs it time
only. A stream that has begun is continued where that gives the same answer (resume.py); else it ends with an error event."""
from __future__ import annotations

import asyncio
import logging
from typing import Any, AsyncIterator, Optional, Union

from ray.serve.handle import DeploymentHandle
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from moed_ray.conversation import conversation_of
from moed_ray.failure import error_body, error_event
from moed_ray.resume import Continuation

log = logging.getLogger("ray.serve")

ATTEMPTS = 4
PAUSE_S = 0.5
STREAMS = ("text/event-stream", "application/x-ndjson")

Part = Union[tuple[int, dict[str, str]], bytes]


class Lost(Exception):
    """The replica, or its node, has ended."""


class Exchange:
    """A request at one replica."""

    def __init__(self, handle: DeploymentHandle, request: dict[str, Any]) -> None:
        self._parts: Any = handle.options(stream=True).handle.remote(request)
        self.status = 0
        self.headers: dict[str, str] = {}

    async def _next(self) -> Optional[Part]:
        try:
            return await self._parts.__anext__()
        except StopAsyncIteration:
            return None
        except asyncio.CancelledError:
            raise
        except Exception as e:  # Ray has many errors for this, and those of aiohttp come wrapped in one
            raise Lost(str(e).strip().rsplit("\n", 1)[-1][:200]) from e

    async def begin(self) -> None:
        head = await self._next()
        if not isinstance(head, tuple):
            raise Lost("the reply has no head")
        self.status, self.headers = head

    async def body(self) -> AsyncIterator[bytes]:
        while (part := await self._next()) is not None:
            assert isinstance(part, bytes)
            yield part

    @property
    def streams(self) -> bool:
        return self.headers.get("content-type", "").startswith(STREAMS)

    @property
    def node(self) -> str:
        return self.headers.get("x-moed-node", "")

    def close(self) -> None:
        self._parts.cancel()


class Gateway:
    def __init__(self, handle: DeploymentHandle) -> None:
        self._handle = handle

    async def _begin(self, request: dict[str, Any]) -> tuple[Exchange, Optional[bytes]]:
        """A reply that has begun, and its whole body where it is no stream. Raises Lost where no replica answers."""
        why = Lost("no replica answers")
        for attempt in range(ATTEMPTS):
            exchange = Exchange(self._handle, request)
            try:
                await exchange.begin()
                if exchange.status == 503 and attempt + 1 < ATTEMPTS:  # its worker is being restarted, or its queue is full
                    request = {**request, "avoid": [*request["avoid"], exchange.node]}
                    exchange.close()
                elif exchange.streams:
                    return exchange, None
                else:
                    return exchange, b"".join([part async for part in exchange.body()])
            except Lost as e:
                log.warning("moed: %s %s is sent again: %s", request["method"], request["path"], e)
                why = e
            if attempt:
                await asyncio.sleep(PAUSE_S * attempt)
        raise why

    async def _relay(self, request: dict[str, Any], exchange: Exchange, continuation: Continuation) -> AsyncIterator[bytes]:
        """The rest of a stream. A replica that is lost on the way is replaced as often as needed."""
        try:
            while True:
                try:
                    async for part in exchange.body():
                        yield continuation.passed(part)
                    return
                except Lost as e:
                    log.warning("moed: a stream of %s was cut: %s", request["path"], e)
                if continuation.is_complete and not continuation.why_not:
                    yield continuation.end()
                    return
                try:
                    exchange = await self._continue(request, continuation)
                except Lost as e:
                    yield error_event(request["path"], f"the answer cannot be continued: {e}")
                    return
        finally:
            exchange.close()

    async def _continue(self, request: dict[str, Any], continuation: Continuation) -> Exchange:
        if continuation.why_not:
            raise Lost(f"a node was lost, and {continuation.why_not}")
        tokens = await self._count_tokens(request, continuation.text)
        if continuation.hides_tokens(tokens):
            raise Lost("a node was lost, and the text does not show all tokens of the answer")
        exchange, whole = await self._begin({**request, "body": continuation.body(tokens)})
        if whole is not None:
            exchange.close()
            raise Lost(f"a node was lost, and another one refuses the rest with status {exchange.status}")
        continuation.began()
        return exchange

    async def _count_tokens(self, request: dict[str, Any], text: str) -> int:
        body = Continuation.count_body(text)
        exchange, whole = await self._begin({**request, "method": "POST", "path": "/tokenize", "body": body})
        if exchange.status != 200 or whole is None:
            raise Lost(f"a node was lost, and /tokenize has status {exchange.status}")
        return Continuation.count_in(whole)

    async def __call__(self, incoming: Request) -> Response:
        headers = {k.lower(): v for k, v in incoming.headers.items()}
        body = await incoming.body()
        path = incoming.url.path + (f"?{incoming.url.query}" if incoming.url.query else "")
        continuation = Continuation(path, body)
        request = {"method": incoming.method, "path": path, "headers": headers, "body": continuation.first_body,
                   "conversation": conversation_of(headers, body), "avoid": []}
        try:
            exchange, whole = await self._begin(request)
        except Lost as e:
            log.warning("moed: no replica answers %s: %s", path, e)
            return Response(error_body(path, "no node answers now: try again"), 503, {"retry-after": "2"}, "application/json")
        if whole is not None:
            return Response(whole, exchange.status, exchange.headers)
        return StreamingResponse(self._relay(request, exchange, continuation), exchange.status, exchange.headers)
