"""Serve's router of requests to the nodes: a conversation goes to the node that has it."""
from __future__ import annotations

from typing import Any, Optional

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

from moed_ray.placement import Memory


class ConversationRouter(RequestRouter):
    """Ranks the replicas by their nodes. Serve takes the one of a rank with the shortest queue, and the next rank where all of them
    have as much as they may have."""

    def initialize_state(self, aware: bool = True, **_: Any) -> None:
        """AWARE: false ranks all replicas alike, for comparison."""
        self._aware, self._memory = aware, Memory()

    @staticmethod
    def _about(pending: Optional[PendingRequest]) -> dict[str, Any]:
        request = pending.args[0] if pending is not None and pending.args else None
        return request if isinstance(request, dict) else {}

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: Optional[PendingRequest] = None
    ) -> list[list[RunningReplica]]:
        about = self._about(pending_request)
        conversation = about.get("conversation", "") if self._aware else ""
        nodes = [r.node_id for r in candidate_replicas]
        ranks = self._memory.ranks(conversation, nodes, about.get("avoid", ()))
        return [[r for r in candidate_replicas if r.node_id in rank] for rank in ranks]

    def on_request_routed(self, pending_request: PendingRequest, replica_id: Any, result: Any) -> None:
        conversation = self._about(pending_request).get("conversation")
        replica = self.curr_replicas.get(replica_id)
        if conversation and replica is not None:
            self._memory.put(conversation, replica.node_id)
