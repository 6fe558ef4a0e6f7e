"""The moed-http processes of a node. One that dies takes its own requests with it, and is replaced."""
from __future__ import annotations

import asyncio
from typing import AsyncIterator, Mapping, Union

from moed_ray.frontend_process import FrontendProcess, Head
from moed_ray.node_deployment import NodeDeployment, NodeError
from moed_ray.settings import Settings


class FrontendPool:
    def __init__(self, deployment: NodeDeployment, settings: Settings) -> None:
        self._deployment, self._settings = deployment, settings
        self._processes: list[FrontendProcess] = []
        self._replacing = asyncio.Lock()

    async def start(self) -> None:
        await self.replace_dead()

    async def replace_dead(self) -> None:
        async with self._replacing:
            for dead in [p for p in self._processes if not p.alive]:
                self._processes.remove(dead)
                await dead.stop()
            while len(self._processes) < self._settings.frontends:
                new = FrontendProcess(self._deployment, self._settings.moed, self._settings.http_options)
                await new.start()
                self._processes.append(new)

    def _least_busy(self) -> FrontendProcess:
        alive = [p for p in self._processes if p.alive]
        if not alive:
            raise NodeError("no moed-http runs on this node now")
        return min(alive, key=lambda p: p.running)

    async def exchange(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> AsyncIterator[Union[Head, bytes]]:
        async for part in self._least_busy().exchange(method, path, headers, body):
            yield part

    async def metrics(self) -> str:
        return (await self._least_busy().get("/metrics?process=all"))[1]

    async def stop(self) -> None:
        for process in self._processes:
            await process.stop()
        self._processes.clear()
