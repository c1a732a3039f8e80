"""The nodes of a cluster: their addresses, the lanes to them, and how a reconnect is held back.

``AddressBook`` holds bootstrap nodes and those of the metadata; ``NodeStates`` remembers about an
address between its connections.

An address is *fine*, or it has failed ``failures`` times since it was last usable. After each
failure it is left alone until ``retry_at``, exponentially longer with 20% jitter, and then *one*
connection may probe it, whatever number of lanes wait and however many nodes are said to be there.
Only a usable connection (versions known, authenticated) ends that: a listener that accepts and
hangs up costs as little as a closed port. How long the next wait is, is forgotten only when a
connection has *proved* itself, by an answer to a request or by lasting: a listener that hangs up
on everybody right after the handshake is dialed as seldom. Until then the other lanes hold back a
moment. Connections of several lanes that break at once count as one failure. Throttling (KIP-219)
is per connection and so lives in ``connection.py``. Sans-IO: ``now`` and ``rng`` come in.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from kclient.backoff import Backoff


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
        """Take ``nodes`` for all known brokers; give (ids that were removed, ids that moved).

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


@dataclass(slots=True)
class NodeState:
    """One address.

    Attributes:
        failures: In a row, since its last usable connection.
        streak: Failures since the last connection that proved itself.
        unusable: Attempts in a row that gave no usable connection; a lost one doesn't count.
        setup_timeouts: Attempts since then that took too long.
        retry_at: When it may be dialed again; 0.0 where there was no reason to wait.
        probing: Attempts under way.
        last_error: The latest failure since its last usable connection.
        latest_failure: When it failed last and how, also where it was usable since; for people to
            look at, as ``last_error`` is what counts.
    """

    failures: int = 0
    streak: int = 0
    unusable: int = 0
    setup_timeouts: int = 0
    retry_at: float = 0.0
    probing: int = 0
    last_error: Exception | None = None
    latest_failure: tuple[float, Exception] | None = None


_FINE = NodeState()
"""An address that nothing is known of."""


class NodeStates:
    """Back-off per address, ``host:port``.

    Args:
        backoff: Waits between attempts.
        setup: Setup time-outs; grows with each attempt that timed out.
        rng: Source of the jitter.
    """

    def __init__(self, backoff: Backoff, setup: Backoff, rng: random.Random) -> None:
        self._backoff = backoff
        self._setup = setup
        self._rng = rng
        self._nodes: dict[str, NodeState] = {}

    def can_dial(self, address: str, now: float) -> bool:
        """A connection may be opened now: no back-off, no other one probes a failed one."""
        state = self.of(address)
        return now >= state.retry_at and not (state.failures and state.probing)

    def of(self, address: str) -> NodeState:
        """What is known of it; for reading."""
        return self._nodes.get(address, _FINE)

    def setup_timeout(self, address: str) -> float:
        """Seconds for the next attempt, from the start of the dial to a usable connection."""
        return self._setup.delay(self.of(address).setup_timeouts, self._rng)

    def dialing(self, address: str) -> None:
        """An attempt begins. It must end in ``usable``, ``failed`` or ``abandoned``."""
        self._state(address).probing += 1

    def abandoned(self, address: str) -> None:
        """An attempt ended that says nothing about the peer, such as by our own close."""
        state = self._state(address)
        state.probing = max(0, state.probing - 1)

    def usable(self, address: str, now: float) -> None:
        """An attempt gave a usable connection: forgiven, but not forgotten yet."""
        state = self._state(address)
        state.probing = max(0, state.probing - 1)
        state.failures = 0
        state.setup_timeouts = 0
        state.unusable = 0
        state.retry_at = now + self._backoff.initial if state.streak else 0.0
        state.last_error = None

    def proved(self, address: str) -> None:
        """A connection was of use for the first time: forgotten."""
        state = self._state(address)
        state.streak = 0
        if not state.failures:
            state.retry_at = 0.0

    def failed(
        self, address: str, now: float, error: Exception, *, setup_timed_out: bool = False
    ) -> None:
        """An attempt failed."""
        state = self._state(address)
        state.probing = max(0, state.probing - 1)
        if setup_timed_out:
            state.setup_timeouts += 1
        if self._count(state, now, error):
            state.unusable += 1

    def lost(self, address: str, now: float, error: Exception, *, lasted: float = 0.0) -> None:
        """A connection broke that was usable for ``lasted`` seconds."""
        state = self._state(address)
        if lasted >= self._backoff.maximum and not state.failures:
            state.streak = 0
        self._count(state, now, error)

    def trim(self, now: float, wanted: Collection[str]) -> None:
        """Forget addresses that aren't ``wanted`` any more, once their back-off is over."""
        for address, state in list(self._nodes.items()):
            if address not in wanted and not state.probing and now >= state.retry_at:
                del self._nodes[address]

    def _count(self, state: NodeState, now: float, error: Exception) -> bool:
        state.last_error = error
        state.latest_failure = now, error
        if state.failures and now < state.retry_at:
            return False  # another lane, broken by the same event
        state.retry_at = now + self._backoff.delay(state.streak, self._rng)
        state.failures += 1
        state.streak += 1
        return True

    def _state(self, address: str) -> NodeState:
        return self._nodes.setdefault(address, NodeState())
