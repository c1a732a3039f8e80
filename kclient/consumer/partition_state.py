"""One assigned partition: its phase, and all that the package knows of it. Sans-IO.

The table of phases is here, ``subscription`` takes the steps. A partition without a position gets
one from ``seek``, from what its group has committed, or by a lookup for the reset policy or for
``seek_to_beginning`` / ``seek_to_end``. A change of leader sends it through VALIDATING where the
broker can report whether the log was cut below our position (KIP-320).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kclient.cluster.topic import NO_EPOCH
from kclient.types import OffsetSpec, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kclient.consumer.offset_reset import Reset
    from kclient.errors import KafkaError


class Phase(enum.Enum):
    """The phase of one assigned partition."""

    NO_POSITION = "Nobody said where to start, and no reset policy does: poll raises NoPosition."
    AWAITING_COMMITTED = "The coordinator is asked what the group has committed."
    AWAITING_RESET = "The start offset is being looked up."
    VALIDATING = "The leader changed: the position is compared with the new leader's log."
    FETCHING = "The position is known and good: data is fetched, unless paused."

    __hash__ = object.__hash__  # Enum's own is a Python call, at each step of each partition


class PhaseEvent(enum.Enum):
    """What moves a partition from one phase to another."""

    SOUGHT = "The user gave the position."
    GROUP_ASKED = "It belongs to a group, which may have a position."
    RESET_ASKED = "The user or the reset policy wants the beginning or the end."
    RESET_DONE = "The lookup brought the offset."
    COMMITTED_FOUND = "The group has committed an offset."
    NOTHING_COMMITTED = "The group has committed none."
    LEADER_CHANGED = "A leader epoch above the one that the position was read under."
    VALIDATED = "The new leader's log contains the position."
    POSITION_LOST = "The position means nothing any more, and there is no reset policy."

    __hash__ = object.__hash__


_P, _E = Phase, PhaseEvent
_ALWAYS = {
    _E.SOUGHT: _P.FETCHING,
    _E.RESET_ASKED: _P.AWAITING_RESET,
    _E.POSITION_LOST: _P.NO_POSITION,
}
TRANSITIONS: Final[Mapping[Phase, Mapping[PhaseEvent, Phase]]] = {
    _P.NO_POSITION: {_E.GROUP_ASKED: _P.AWAITING_COMMITTED, **_ALWAYS},
    _P.AWAITING_COMMITTED: {
        _E.COMMITTED_FOUND: _P.FETCHING,
        _E.NOTHING_COMMITTED: _P.NO_POSITION,
        **_ALWAYS,
    },
    _P.AWAITING_RESET: {_E.RESET_DONE: _P.FETCHING, **_ALWAYS},
    _P.VALIDATING: {_E.LEADER_CHANGED: _P.VALIDATING, _E.VALIDATED: _P.FETCHING, **_ALWAYS},
    _P.FETCHING: {_E.LEADER_CHANGED: _P.VALIDATING, **_ALWAYS},
}


@dataclass(slots=True, eq=False, repr=False)
class PartitionState:
    """One assigned partition.

    Read by the whole package, changed by ``Subscription`` only, except for the fields marked with
    their writer.

    Attributes:
        topic_partition: The partition.
        phase: See ``Phase``.
        position: Offset of the next record to return; None while unknown.
        position_epoch: Leader epoch of the last record returned, -1 unknown (KIP-320).
        fetch_offset: Where the next fetch continues: ``position`` plus what is buffered.
        position_version: Counts the positions that were set; data of an earlier count is void, even
            where the new position is the old one.
        paused: Neither fetched nor returned, as it is ``kept_back``, ``held`` or ``crowded``.
        kept_back: The application paused it.
        crowded: Handlers have enough of it to do.
        held: The group is revoking it, or has not passed it to the rebalance listener yet.
        assigned: False once it was unassigned; every holder of it must drop it then.
        reset_to: What AWAITING_RESET looks up.
        error: Raised by the next poll, then cleared.
        failures: Tries in a row that brought nothing but an error (fetch, lookup).
        retry_at: Not to be requested before this time.
        poll_count: The poll in which a record of it was last returned: ``finished`` is the position
            before that.
        finished, finished_epoch: Position and its epoch before the poll ``poll_count``.
        base: Position at which nothing was consumed since the last assignment, seek, reset or
            explicit commit; None while the position is unknown.
        kept: Offset and leader epoch that automatic commits use while nothing was consumed
            since ``base``; None for no commit.
        explicit: The application committed an offset at ``base``, which automatic commits keep.
        chosen: The pending reset comes from the reset policy, so its position is committed.
        restarts: Counts events after which the stall detector starts to wait again: errors for
            poll, and pauses that ended.
        resets: Resets in a row, by policy, after which the offset was out of range again.
        leader_epoch: Newest leader epoch seen, -1 unknown.
        topic_id: The incarnation of the topic that the position belongs to (KIP-516).
        former_id: The id of the topic that was deleted before this one was created; None where
            that wasn't seen.
        buffered_bytes: Of data that waits for poll. Writer: fetch_buffer.
        high_watermark, last_stable_offset, log_start_offset: As last reported by the broker, -1
            unknown. Writer: fetch_response.
        replica, replica_until: Preferred follower and until when (KIP-392). Writer:
            fetch_scheduler.
        node_id: Broker that it is fetched from, None where there is none. Writer: fetch_scheduler.
    """

    topic_partition: TopicPartition
    phase: Phase = Phase.NO_POSITION
    position: int | None = None
    position_epoch: int = -1
    fetch_offset: int | None = None
    position_version: int = 0
    paused: bool = False
    kept_back: bool = False
    held: bool = False
    crowded: bool = False
    assigned: bool = True
    reset_to: Reset = OffsetSpec.LATEST
    error: KafkaError | None = None
    failures: int = 0
    retry_at: float = 0.0
    resets: int = 0
    restarts: int = 0
    leader_epoch: int = NO_EPOCH
    topic_id: bytes | None = None
    former_id: bytes | None = None
    poll_count: int = -1
    finished: int | None = None
    finished_epoch: int = -1
    base: int | None = None
    kept: tuple[int, int] | None = None
    explicit: bool = False
    chosen: bool = False
    buffered_bytes: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    replica: int | None = None
    replica_until: float = 0.0
    node_id: int | None = None

    def __repr__(self) -> str:
        paused = ", paused" if self.paused else ""
        return f"<{self.topic_partition} {self.phase.name} at {self.position}{paused}>"

    def lag(self, *, read_committed: bool) -> int | None:
        """Records between the position and the end that this reader can see; None if unknown."""
        end = self.last_stable_offset if read_committed else self.high_watermark
        if end < 0 or self.position is None:
            return None
        return max(end - self.position, 0)
