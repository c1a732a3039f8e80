"""Whom we talk to: nodes, the lanes to them, and the address book that holds both kinds of node.

Used by every file of the room and by the rooms above as plain values. Sans-IO.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Lane(enum.IntEnum):
    """What a connection is for. Each lane to a node is a connection of its own.

    Responses come in order, so a request that parks at the broker holds up all behind it: a
    JoinGroup or a long-polling fetch must not share a connection with anything in a hurry.
    """

    GENERAL = 0
    """Metadata, lookups, administration."""
    PRODUCE = 1
    """Produce requests, in order."""
    FETCH = 2
    """Fetch requests, which wait at the broker for data."""
    GROUP = 3
    """The coordinator: joins park, heartbeats must not."""


class ConnectionKey(NamedTuple):
    """Names one connection of a client."""

    node_id: int
    lane: Lane

    def __str__(self) -> str:
        return f"node={self.node_id} lane={self.lane.name.lower()}"


class Node(NamedTuple):
    """A broker's entry in the address book. Bootstrap nodes have ids -1, -2 and so on."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> str:
        """``host:port``, IPv6 in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class AddressBook:
    """Nodes by id: those that metadata named, and the bootstrap nodes apart from them.

    Bootstrap nodes stay for the whole life of a client: when no broker is known, or none is
    reachable any more, they are where to start again.
    """

    def __init__(self, bootstrap: Sequence[tuple[str, int]]) -> None:
        self.bootstrap: Mapping[int, Node] = {
            -index: Node(-index, host, port) for index, (host, port) in enumerate(bootstrap, 1)
        }
        self.nodes: Mapping[int, Node] = {}

    def get(self, node_id: int) -> Node | None:
        """The node of that id, bootstrap or not."""
        return self.bootstrap.get(node_id) if node_id < 0 else self.nodes.get(node_id)

    def replace(self, nodes: Iterable[Node]) -> tuple[set[int], set[int]]:
        """Take ``nodes`` for all known brokers; give (ids that are gone, ids that moved).

        A node has moved when its host or port is another one than before.
        """
        before = self.nodes
        self.nodes = {node.node_id: node for node in nodes if node.node_id >= 0}
        gone = before.keys() - self.nodes.keys()
        moved = {
            node_id
            for node_id, node in self.nodes.items()
            if node_id in before and before[node_id][1:3] != node[1:3]
        }
        return gone, moved
