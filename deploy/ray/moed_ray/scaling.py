"""How many nodes there should be. Pure: the figures come from the nodes' metrics, Serve applies the delays."""
from __future__ import annotations

import math
from typing import Any

TARGET = 0.8  # of the requests that the nodes compute at once
KV_FULL = 0.95


def nodes_wanted(requests: float, parallel: int, nodes: int, kv_used: float, suspended: float) -> int:
    """REQUESTS run or wait, everywhere. A node computes PARALLEL at once. SUSPENDED: running requests that a node put aside lately
    because the KV cache was full; KV_USED: the fullest node's share. A full KV cache alone is no reason: it keeps old conversations."""
    wanted = math.ceil(requests / (parallel * TARGET))
    if suspended > 0 and kv_used >= KV_FULL:
        wanted = max(wanted, nodes + 1)
    return max(1, wanted)


class Policy:
    """What Serve calls with its AutoscalingContext: a replica is a node."""

    def __init__(self, parallel: int) -> None:
        self._parallel = parallel

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        def values(name: str) -> list[float]:
            return list((context.aggregated_metrics or {}).get(name, {}).values())

        wanted = nodes_wanted(
            sum(values("requests")) + (context.total_queued_requests or 0), self._parallel, context.current_num_replicas,
            max(values("kv_used"), default=0), max(values("suspended"), default=0),
        )
        return min(max(wanted, context.capacity_adjusted_min_replicas), context.capacity_adjusted_max_replicas), {}
