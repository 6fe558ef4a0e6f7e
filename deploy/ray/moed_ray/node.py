"""A replica of Serve: a node that serves. It has the node's deployment, and several moed-http that are attached to it."""
from __future__ import annotations

import asyncio
from typing import Any, AsyncIterator, Union

import ray

from moed_ray.figures import Figures
from moed_ray.frontend_pool import FrontendPool
from moed_ray.frontend_process import Head
from moed_ray.node_deployment import NodeDeployment
from moed_ray.settings import Settings


class Node:
    async def __init__(self, settings: Settings) -> None:  # type: ignore[misc]  # Serve awaits it
        self._node = ray.get_runtime_context().get_node_id()
        self._deployment = NodeDeployment(settings, self._node)
        self._figures = Figures()
        await asyncio.to_thread(self._deployment.attach)
        self._pool = FrontendPool(self._deployment, settings)
        await self._pool.start()

    async def handle(self, request: dict[str, Any]) -> AsyncIterator[Union[Head, bytes]]:
        """REQUEST: method, path, headers, body; conversation and avoid are for the router."""
        async for part in self._pool.exchange(request["method"], request["path"], request["headers"], request["body"]):
            if isinstance(part, tuple):
                part[1]["x-moed-node"] = self._node
            yield part

    async def record_autoscaling_stats(self) -> dict[str, float]:
        return self._figures.read(await self._pool.metrics())

    async def check_health(self) -> None:
        """Serve replaces this replica where it fails. A process behind moed-http that restarts is the supervisor's matter."""
        await self._pool.replace_dead()

    async def __del__(self) -> None:
        await self._pool.stop()
        self._deployment.detach()
