"""Deployments on this machine behind HAProxy."""
from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

CONFIGURATION = Path(__file__).resolve().parents[2] / "deploy/routers/haproxy.cfg"
SERVERS = re.compile(r"^\.if defined\(MOED_REPLICAS\).*?^\.endif$", re.M | re.S)
# What keeps conversations together.
STICKY = re.compile(r"^    (stick on|stick-table) .*\n", re.M)
START_S = 600


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def haproxy() -> str:
    found = shutil.which("haproxy", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if not found:
        raise SystemExit("haproxy is not installed: deploy/install-packages router")
    return found


class Replicas:
    """COUNT replicas with one thread each. They share the cores that this program may use: each is bound to one core, in turn."""

    def __init__(self, moed: Path, model: str, count: int, work: Path, aware: bool) -> None:
        self._moed, self._work, self._runs = moed, work, [work / f"r{i}" for i in range(count)]
        self._router: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        try:
            ports = [self._start(i, model) for i in range(count)]
            self._route(ports, aware)
        except BaseException:
            self.stop()
            raise

    def _environment(self, run: Path) -> dict[str, str]:
        return {**os.environ, "MOED_RUN": str(run), "XDG_CACHE_HOME": str(self._work), "XDG_CONFIG_HOME": str(self._work)}

    def _start(self, i: int, model: str) -> int:
        cores = sorted(os.sched_getaffinity(0))
        context = "512" if "demo" in model else "2048"
        command = ["taskset", "-c", str(cores[i % len(cores)]), str(self._moed), "up", model, "--device", "host", "--threads", "1", "--ctx", context,
                   "--parallel", "8", "--kv-cache", "256M", "--http", "127.0.0.1:0"]
        done = subprocess.run(command, env=self._environment(self._runs[i]), capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"replica {i} does not start: {done.stderr.strip()[-500:]}")
        log = (self._runs[i] / "http.log").read_text(encoding="utf-8")
        return int(re.findall(r"listening at http:.*:(\d+)$", log, re.M)[-1])

    def _route(self, ports: list[int], aware: bool) -> None:
        text = CONFIGURATION.read_text(encoding="utf-8")
        servers = "\n".join(f"    server r{i} 127.0.0.1:{port}" for i, port in enumerate(ports))
        text, replaced = SERVERS.subn(servers, text)
        assert replaced == 1, f"{CONFIGURATION} has no servers"
        if not aware:
            text, replaced = STICKY.subn("", text)
            assert replaced == 2, f"{CONFIGURATION} has other lines for conversations"
        path = self._work / "haproxy.cfg"
        path.write_text(text, encoding="utf-8")
        environment = {**os.environ, "MOED_BIND": f"127.0.0.1:{self.port}", "MOED_ROUTER_SOCKET": str(self._work / "sock")}
        with open(self._work / "haproxy.log", "wb") as log:
            self._router = subprocess.Popen([haproxy(), "-db", "-f", path], env=environment, stdout=log, stderr=log)
        self._wait_for_all(len(ports))

    def _wait_for_all(self, count: int) -> None:
        end = time.monotonic() + START_S
        while self._servers_up() < count:
            if time.monotonic() > end or (self._router and self._router.poll() is not None):
                raise SystemExit("HAProxy does not serve: " + (self._work / "haproxy.log").read_text(encoding="utf-8")[-800:])
            time.sleep(0.1)

    def _servers_up(self) -> int:
        try:
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(str(self._work / "sock"))
                s.sendall(b"show stat\n")
                with s.makefile(encoding="utf-8") as reply:
                    return sum(line.startswith("moed,r") and ",UP," in line and ",L7OK," in line for line in reply)
        except OSError:
            return 0

    def stop(self) -> None:
        if self._router is not None:
            self._router.kill()
            self._router.wait()
        for run in self._runs:
            subprocess.run([self._moed, "down"], env=self._environment(run), capture_output=True, check=False)

    def __enter__(self) -> "Replicas":
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()
