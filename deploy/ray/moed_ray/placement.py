"""Which node a conversation goes to. Every gateway comes to the same answer without asking another one: the node with the highest hash
of conversation and node (rendezvous hashing). When nodes come or go, only the conversations of those nodes move. A conversation that
went elsewhere, because its node was busy, stays there: `Memory` keeps that."""
from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Iterable

MOST_REMEMBERED = 100_000


def nodes_by_preference(conversation: str, nodes: Iterable[str]) -> list[str]:
    def score(node: str) -> bytes:
        return hashlib.sha256(f"{conversation}\0{node}".encode(errors="surrogatepass")).digest()

    return sorted(set(nodes), key=score, reverse=True)


class Memory:
    """The node that a conversation last went to; the least recently used ones are forgotten."""

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._nodes: OrderedDict[str, str] = OrderedDict()
        self._most = most

    def put(self, conversation: str, node: str) -> None:
        self._nodes[conversation] = node
        self._nodes.move_to_end(conversation)
        if len(self._nodes) > self._most:
            self._nodes.popitem(last=False)

    def ranks(self, conversation: str, nodes: Iterable[str], avoid: Iterable[str] = ()) -> list[list[str]]:
        """The nodes in the order in which to try them; those of one list are equally good."""
        known, bad = set(nodes), set(avoid)
        if not conversation:
            ranks = [sorted(known)]
        else:
            order = nodes_by_preference(conversation, known)
            last = self._nodes.get(conversation)
            if last in known:
                order.remove(last)
                order.insert(0, last)
            ranks = [[node] for node in order]
        good = [[n for n in rank if n not in bad] for rank in ranks]
        return [rank for rank in (*good, sorted(known & bad)) if rank]
