"""The one deployment of a node. What serves on the node shares it: the first user starts it, and a keeper stops it some time after the
last user has gone. So a process of Ray that dies, or is replaced, finds the model loaded.

A user holds a shared lock on DIRECTORY/users. The keeper waits for the exclusive one."""
from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from typing import IO

from moed_ray.settings import Settings

ALREADY_RUNNING = 4  # exit code of `moed up`
KEEPER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "keeper.py")


class NodeError(RuntimeError):
    """The node cannot run the deployment; the text says why."""


class NodeDeployment:
    def __init__(self, settings: Settings, node_id: str) -> None:
        self._settings = settings
        self.directory = settings.node_directory(node_id)
        # Named `default`: then the model has the file's name on every node.
        self.run = os.path.join(self.directory, "default")
        self._users: IO[str] | None = None

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "MOED_RUN": self.run}

    def attach(self) -> None:
        """Makes this process a user of the deployment, which answers then. Loading a model takes minutes."""
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        self._users = open(os.path.join(self.directory, "users"), "w", encoding="ascii")
        fcntl.flock(self._users, fcntl.LOCK_SH)
        with open(os.path.join(self.directory, "start"), "w", encoding="ascii") as start:
            fcntl.flock(start, fcntl.LOCK_EX)
            self._start()
        self._keep()

    def _start(self) -> None:
        s = self._settings
        command = [s.moed, "up", s.model, "--parallel", str(s.parallel), *s.options]
        try:
            done = subprocess.run(command, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        except OSError as e:
            raise NodeError(f"cannot run {s.moed}: {e.strerror}; install moed on every node, or name it with --moed") from None
        if done.returncode not in (0, ALREADY_RUNNING):
            raise NodeError(f"moed up failed: {(done.stderr or done.stdout).strip()[-500:]}")

    def _keep(self) -> None:
        """Starts the keeper where none runs. It survives this process, and is not its child: Ray ends those."""
        command = [sys.executable, KEEPER, self.directory, self.run, self._settings.moed, str(self._settings.linger_s)]
        subprocess.run(command, stdin=subprocess.DEVNULL, check=True)

    def detach(self) -> None:
        if self._users is not None:
            self._users.close()
        self._users = None
