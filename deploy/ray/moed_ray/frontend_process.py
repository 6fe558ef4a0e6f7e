"""A moed-http that is attached to the node's deployment, and reached over a unix socket."""
from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from typing import AsyncIterator, Mapping, Sequence, Union

import aiohttp

from moed_ray.node_deployment import NodeDeployment, NodeError

READY_S = 30.0
DROPPED = {"connection", "content-length", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}

Head = tuple[int, dict[str, str]]


def _program(moed: str) -> str:
    """moed-http is beside moed."""
    beside = os.path.join(os.path.dirname(os.path.realpath(shutil.which(moed) or moed)), "moed-http")
    return beside if os.path.exists(beside) else "moed-http"


class FrontendProcess:
    def __init__(self, deployment: NodeDeployment, moed: str, options: Sequence[str] = ()) -> None:
        """OPTIONS: of moed-http."""
        self._deployment, self._moed, self._options = deployment, moed, options
        self._process: asyncio.subprocess.Process | None = None
        self._directory = ""
        self._client: aiohttp.ClientSession | None = None
        self.running = 0  # requests

    async def start(self) -> None:
        self._directory = tempfile.mkdtemp(prefix="http-", dir=self._deployment.directory)
        socket = os.path.join(self._directory, "http.sock")
        # setpriv: the kernel ends it with this process, also where that is killed.
        command = ["setpriv", "--pdeathsig", "KILL", _program(self._moed), f"--run={self._directory}", "--listen=127.0.0.1:0", f"--unix={socket}", *self._options]
        with open(os.path.join(self._directory, "http.log"), "wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, env=self._deployment.environment, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
            )
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        self._client = aiohttp.ClientSession(connector=aiohttp.UnixConnector(path=socket, limit=0), timeout=timeout, auto_decompress=False)
        await self._wait_until_ready()

    async def _wait_until_ready(self) -> None:
        end = asyncio.get_running_loop().time() + READY_S
        while asyncio.get_running_loop().time() < end and self.alive:
            try:
                if (await self.get("/livez"))[0] == 200:
                    return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.05)
        raise NodeError(f"moed-http does not start: {self._last_lines()}")

    def _last_lines(self) -> str:
        with open(os.path.join(self._directory, "http.log"), encoding="utf-8", errors="replace") as f:
            return f.read()[-500:].strip()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def get(self, path: str) -> tuple[int, str]:
        assert self._client is not None
        async with self._client.get("http://localhost" + path) as reply:
            return reply.status, await reply.text()

    async def exchange(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> AsyncIterator[Union[Head, bytes]]:
        """The reply: its status and headers, then its body as it comes. Leaving it closes the connection, which cancels the request."""
        assert self._client is not None
        kept = {k: v for k, v in headers.items() if k.lower() not in DROPPED}
        self.running += 1
        try:
            async with self._client.request(method, "http://localhost" + path, headers=kept, data=body or None) as reply:
                yield reply.status, {k.lower(): v for k, v in reply.headers.items() if k.lower() not in DROPPED}
                async for chunk in reply.content.iter_any():
                    yield chunk
        finally:
            self.running -= 1

    async def stop(self) -> None:
        if self._client is not None:
            await self._client.close()
        if self._process is not None and self.alive:
            self._process.terminate()
            await self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)
