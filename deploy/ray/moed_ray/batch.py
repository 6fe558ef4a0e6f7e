"""Answers prompts in bulk: what ray.data runs on each node."""
from __future__ import annotations

import asyncio
import json
from typing import Any

import ray

from moed_ray.frontend_process import FrontendProcess
from moed_ray.node_deployment import NodeDeployment
from moed_ray.settings import Settings

RETRIES = 5
PAUSE_S = 1.0


def answer_of(reply: bytes) -> dict[str, Any]:
    """An answer of either API as a row."""
    document = json.loads(reply)
    choice = document["choices"][0]
    text = choice["text"] if "text" in choice else choice["message"].get("content") or ""
    return {"text": text, "finish_reason": choice["finish_reason"], "usage": document["usage"]}


class Answers:
    """An actor of ray.data, on a node of its own. Rows come and go as JSON texts: their columns differ."""

    def __init__(self, settings: Settings, parameters: dict[str, Any]) -> None:
        self._parameters, self._parallel = parameters, settings.parallel
        self._deployment = NodeDeployment(settings, ray.get_runtime_context().get_node_id())
        self._deployment.attach()
        self._loop = asyncio.new_event_loop()
        self._http = FrontendProcess(self._deployment, settings.moed)
        self._loop.run_until_complete(self._http.start())

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"row": self._loop.run_until_complete(self._answer_all([json.loads(row) for row in batch["row"]]))}

    async def _answer_all(self, rows: list[dict[str, Any]]) -> list[str]:
        slots = asyncio.Semaphore(2 * self._parallel)  # so that a next one waits where one ends

        async def one(row: dict[str, Any]) -> str:
            async with slots:
                return json.dumps({"id": row["id"], **await self._answer(row)}, ensure_ascii=False)

        return list(await asyncio.gather(*map(one, rows)))

    async def _answer(self, row: dict[str, Any]) -> dict[str, Any]:
        request = {**self._parameters, **{k: v for k, v in row.items() if k != "id"}, "stream": False}
        path = "/v1/chat/completions" if "messages" in row else "/v1/completions"
        error = ""
        for attempt in range(RETRIES):
            status, body = await self._ask(path, request)
            if status == 200:
                return answer_of(body)
            error = body.decode(errors="replace")[:500]
            if status not in (0, 429, 503):  # the row's own fault
                break
            await asyncio.sleep(PAUSE_S * (attempt + 1))
        return {"error": error}

    async def _ask(self, path: str, request: dict[str, Any]) -> tuple[int, bytes]:
        """Status 0: no reply."""
        status, body = 0, b""
        try:
            async for part in self._http.exchange("POST", path, {"content-type": "application/json"}, json.dumps(request).encode()):
                if isinstance(part, tuple):
                    status = part[0]
                else:
                    body += part
        except OSError as e:  # aiohttp's errors of connections are OSErrors
            return 0, str(e).encode()
        return status, body
