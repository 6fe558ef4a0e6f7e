"""What all parts of the application need to know."""
from __future__ import annotations

import os
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Settings:
    model: str
    moed: str = "moed"  # the program, on every node
    options: list[str] = field(default_factory=list)  # of `moed up`
    http_options: list[str] = field(default_factory=list)  # of `moed-http`
    parallel: int = 4  # requests that a node computes at once
    frontends: int = 2  # processes of moed-http on a node
    linger_s: float = 60.0  # how long a node keeps the model after it has stopped serving
    directory: str = ""  # where the nodes' runtime directories are; at most some 40 bytes

    def node_directory(self, node_id: str) -> str:
        """A directory of this node. Nodes on one machine (a local cluster) have different ones."""
        base = self.directory or f"/tmp/moed-ray-{os.getuid()}"
        return os.path.join(base, node_id[:12])
