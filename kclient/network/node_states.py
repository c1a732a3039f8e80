"""What we remember about a node between its connections: back-off and setup time-outs.

A node is *fine*, or it has failed ``failures`` times since it was last usable. After each failure
it is left alone until ``retry_at``, exponentially longer with 20% jitter, and then *one*
connection may probe it, whatever number of lanes wait. Only a usable connection (versions known,
authenticated) sets that back: a listener that accepts and hangs up costs as little as a closed
port. Connections of several lanes that break at once count as one failure. Throttling (KIP-219)
is per connection and so lives in ``connection.py``. Called by the network client and the
selector. Sans-IO: ``now`` and ``rng`` come in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from kclient.backoff import Backoff


class _NodeState:
    __slots__ = (
        "failures",
        "last_error",
        "latest_failure",
        "probing",
        "retry_at",
        "setup_timeouts",
    )

    def __init__(self) -> None:
        self.failures = 0
        self.setup_timeouts = 0
        self.retry_at = 0.0
        self.probing = 0
        self.last_error: Exception | None = None
        self.latest_failure: tuple[float, Exception] | None = None


class NodeStates:
    """Back-off per node id.

    Args:
        backoff: Waits between attempts.
        setup: Setup time-outs; grows with each attempt that timed out.
        rng: Source of the jitter.
    """

    __slots__ = ("_backoff", "_nodes", "_rng", "_setup")

    def __init__(self, backoff: Backoff, setup: Backoff, rng: random.Random) -> None:
        self._backoff = backoff
        self._setup = setup
        self._rng = rng
        self._nodes: dict[int, _NodeState] = {}

    def can_dial(self, node_id: int, now: float) -> bool:
        """A connection may be opened now: no back-off, and nobody else is probing a failed node."""
        state = self._nodes.get(node_id)
        if state is None or not state.failures:
            return True
        return now >= state.retry_at and not state.probing

    def retry_at(self, node_id: int) -> float:
        """When the back-off of a failed node ends; 0.0 for one that has none."""
        state = self._nodes.get(node_id)
        return state.retry_at if state is not None and state.failures else 0.0

    def is_probed(self, node_id: int) -> bool:
        """The node has failed, and a connection that was opened since is not usable yet."""
        state = self._nodes.get(node_id)
        return state is not None and state.failures > 0 and state.probing > 0

    def failures(self, node_id: int) -> int:
        """Consecutive failures since the node was last usable."""
        state = self._nodes.get(node_id)
        return state.failures if state is not None else 0

    def last_error(self, node_id: int) -> Exception | None:
        """The latest failure since the node was last usable."""
        state = self._nodes.get(node_id)
        return state.last_error if state is not None else None

    def latest_failure(self, node_id: int) -> tuple[float, Exception] | None:
        """When the node failed last and how, also where it was usable since; None if it never did.

        For people to look at; ``last_error`` is what counts.
        """
        state = self._nodes.get(node_id)
        return state.latest_failure if state is not None else None

    def setup_timeout(self, node_id: int) -> float:
        """Seconds for the next attempt, from the start of the dial to a usable connection."""
        state = self._nodes.get(node_id)
        return self._setup.delay(state.setup_timeouts if state is not None else 0, self._rng)

    def dialing(self, node_id: int) -> None:
        """An attempt begins. It must end in ``usable``, ``failed`` or ``abandoned``."""
        self._state(node_id).probing += 1

    def abandoned(self, node_id: int) -> None:
        """An attempt ended that says nothing about the node, such as by our own close."""
        state = self._state(node_id)
        state.probing = max(0, state.probing - 1)

    def usable(self, node_id: int) -> None:
        """An attempt gave a usable connection: all is forgiven."""
        state = self._state(node_id)
        state.probing = max(0, state.probing - 1)
        state.failures = 0
        state.setup_timeouts = 0
        state.retry_at = 0.0
        state.last_error = None

    def failed(
        self, node_id: int, now: float, error: Exception, *, setup_timed_out: bool = False
    ) -> None:
        """An attempt failed."""
        state = self._state(node_id)
        state.probing = max(0, state.probing - 1)
        if setup_timed_out:
            state.setup_timeouts += 1
        self._count(state, now, error)

    def lost(self, node_id: int, now: float, error: Exception) -> None:
        """A usable connection broke."""
        self._count(self._state(node_id), now, error)

    def forget(self, node_id: int) -> None:
        """The node left, or has another address now."""
        self._nodes.pop(node_id, None)

    def _count(self, state: _NodeState, now: float, error: Exception) -> None:
        state.last_error = error
        state.latest_failure = now, error
        if state.failures and now < state.retry_at:
            return  # another lane of the same node, broken by the same event
        state.retry_at = now + self._backoff.delay(state.failures, self._rng)
        state.failures += 1

    def _state(self, node_id: int) -> _NodeState:
        state = self._nodes.get(node_id)
        if state is None:
            state = self._nodes[node_id] = _NodeState()
        return state
