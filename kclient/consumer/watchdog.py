"""Watchdog: a partition that is to be read and gets no answers is an error, never silence. Sans-IO.

Asked by ``poller``. It doesn't trust those who fetch: it only looks whether
each assigned partition that is wanted was asked for in a request that its broker has answered well
lately, whatever else the room believes; one whose position isn't known yet was not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.consumer.fetch_plan import HASTY_FREE
from kclient.consumer.partition_state import Phase
from kclient.errors import ConsumerStalled

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from kclient.consumer.fetch_plan import BrokerQueue
    from kclient.consumer.partition_state import PartitionState

LOOKS = 10
"""Looks per patience; all partitions are walked in each."""
SUSPICIOUS = 0.8
"""Part of the patience after which a partition is suspected. Nobody is accused by one look alone:
where the loop or the process stood still, answers wait that nobody could take."""
_Mark = tuple[Phase, int, int | None]
SHOWN = 3
"""Partitions that the error names; the others are counted."""


class Watchdog:
    """Knows since when each partition that is wanted has had no answer.

    Args:
        patience: Seconds that one may have none.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since: dict[PartitionState, tuple[_Mark, float]] = {}
        self._suspects: dict[PartitionState, tuple[int | None, float]] = {}
        self._reported: dict[PartitionState, tuple[_Mark, float]] = {}
        self.next_look = 0.0
        """When ``check`` looks again."""

    def has_reported(
        self, state: PartitionState, queues: Mapping[int, BrokerQueue], now: Callable[[], float]
    ) -> bool:
        """Whether a stall of ``state`` was raised, and it has had no response since."""
        if state not in self._reported:
            return False
        since = self._waits_since(state, queues, now())
        return self._reported[state] == (_mark(state), since)

    def check(
        self,
        states: Iterable[PartitionState],
        queues: Mapping[int, BrokerQueue],
        now: float,
        *,
        full: bool = False,
        throttled: Collection[int] = (),
    ) -> None:
        """Raise ConsumerStalled where a partition has had no answer for too long.

        It is raised again after as long. ``full``: no broker is asked, for want of room.
        ``throttled``: Brokers that a quota forbids to ask now (KIP-219), which is no stall.
        """
        if now < self.next_look:
            return
        self.next_look = now + self._patience / LOOKS
        waiting, suspects = {}, {}
        stalled = []
        for state in states:
            since = None if full else self._waits_since(state, queues, now)
            if throttled and _is_throttled(state, throttled):
                since = None
            if since is None:
                continue
            waiting[state] = (_mark(state), since)
            if now - since >= self._patience * SUSPICIOUS:
                suspects[state] = node, suspected = self._suspects.get(state, (state.node_id, now))
                if node != state.node_id:
                    suspects[state] = state.node_id, now
                elif now - since >= self._patience and now > suspected:
                    stalled.append(state)
        self._since, self._suspects = waiting, suspects
        self._reported = {
            state: since for state, since in self._reported.items() if waiting.get(state) == since
        }
        if stalled:
            seconds = max(now - waiting[state][1] for state in stalled)
            for state in stalled:
                waiting[state] = self._reported[state] = (_mark(state), now)
                queue = queues.get(state.node_id) if state.node_id is not None else None
                if queue is not None:
                    queue.told(now)
                del suspects[state]
            first = stalled[0].node_id
            raise _error(stalled, seconds, queues.get(first) if first is not None else None)

    def _waits_since(
        self, state: PartitionState, queues: Mapping[int, BrokerQueue], now: float
    ) -> float | None:
        """Since when it has had no answer; None where none is due."""
        if state.paused or state.buffered_bytes or state.phase is Phase.NO_POSITION:
            return None
        mark = _mark(state)
        known, since = self._since.get(state, (mark, now))
        if known != mark or state.error is not None:
            since = now  # what is known about it is told, too
        queue = queues.get(state.node_id) if state.node_id is not None else None
        if queue is None or state.topic_partition not in queue.session.asked:
            return since
        answered = queue.answered_at
        heard = queue.told_at if answered is None else max(queue.told_at, answered)
        return since if heard <= since else min(heard, now)


def _is_throttled(state: PartitionState, throttled: Collection[int]) -> bool:
    """Whether a quota may be what it waits for: of its broker, or of its group's coordinator."""
    return state.node_id in throttled or state.phase is Phase.AWAITING_COMMITTED


def _mark(state: PartitionState) -> _Mark:
    """Where it is: if that is another one than at the last look, the patience begins anew."""
    return state.phase, state.restarts, state.fetch_offset


def _error(
    stalled: list[PartitionState], seconds: float, queue: BrokerQueue | None
) -> ConsumerStalled:
    first = stalled[0]
    named = ", ".join(str(state.topic_partition) for state in stalled[:SHOWN])
    more = f" and {len(stalled) - SHOWN} more" if len(stalled) > SHOWN else ""
    where = "no broker" if first.node_id is None else f"broker {first.node_id}"
    if first.phase is Phase.FETCHING:
        what = f"asked of {where}, at offset {first.fetch_offset}"
        if queue is not None and queue.hasty > HASTY_FREE:
            what += f"; its {queue.hasty} latest responses came at once, with nothing"
    else:
        what = f"{first.phase.name}, {where}"
    return ConsumerStalled(
        f"no fetch of {named}{more} was answered well for {seconds:.1f} s ({what})",
        topic_partition=first.topic_partition,
        hint="it goes on by itself once the broker answers: poll again; see health()",
    )
