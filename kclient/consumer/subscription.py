"""What is assigned and where each partition stands, sans-IO: the one writer of positions.

The consumer's calls (assign, seek, pause), the offset lookups and the fetch buffer all change a
partition through the methods here. ``offsets`` asks for what needs a lookup, ``fetch_plan`` for
what can be fetched. No decisions about brokers, and nothing about groups yet: a membership will
call ``assign`` as the user does, and mark what it takes back.

A partition without a position gets one from ``seek``, or by a lookup that the reset policy or
``seek_to_beginning`` / ``seek_to_end`` asks for. A change of leader sends it through VALIDATING
where the broker can tell whether the log was cut below our position (KIP-320).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from kclient.cluster.partition import NO_EPOCH
from kclient.errors import InvalidArgument
from kclient.transitions import step
from kclient.types import OffsetSpec, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from kclient.errors import KafkaError


class Phase(enum.Enum):
    """Where one assigned partition stands."""

    NO_POSITION = "Nobody said where to start, and no reset policy does: poll raises NoPosition."
    AWAITING_RESET = "The start offset is being looked up."
    VALIDATING = "The leader changed: the position is compared with the new leader's log."
    FETCHING = "The position is known and good: data is fetched, unless paused."

    __hash__ = object.__hash__  # Enum's own is a call of Python, at each step of each partition


class PhaseEvent(enum.Enum):
    """What moves a partition from one phase to another."""

    SOUGHT = "The user gave the position."
    RESET_ASKED = "The user or the reset policy wants the beginning or the end."
    RESET_DONE = "The lookup brought the offset."
    LEADER_CHANGED = "A leader epoch above the one that the position was read under."
    VALIDATED = "The new leader's log contains the position."
    POSITION_LOST = "The position means nothing any more, and there is no reset policy."

    __hash__ = object.__hash__


_P, _E = Phase, PhaseEvent
TRANSITIONS: Final[Mapping[Phase, Mapping[PhaseEvent, Phase]]] = {
    _P.NO_POSITION: {
        _E.SOUGHT: _P.FETCHING,
        _E.RESET_ASKED: _P.AWAITING_RESET,
        _E.POSITION_LOST: _P.NO_POSITION,
    },
    _P.AWAITING_RESET: {
        _E.SOUGHT: _P.FETCHING,
        _E.RESET_ASKED: _P.AWAITING_RESET,
        _E.RESET_DONE: _P.FETCHING,
        _E.POSITION_LOST: _P.NO_POSITION,
    },
    _P.VALIDATING: {
        _E.SOUGHT: _P.FETCHING,
        _E.RESET_ASKED: _P.AWAITING_RESET,
        _E.LEADER_CHANGED: _P.VALIDATING,
        _E.VALIDATED: _P.FETCHING,
        _E.POSITION_LOST: _P.NO_POSITION,
    },
    _P.FETCHING: {
        _E.SOUGHT: _P.FETCHING,
        _E.RESET_ASKED: _P.AWAITING_RESET,
        _E.LEADER_CHANGED: _P.VALIDATING,
        _E.POSITION_LOST: _P.NO_POSITION,
    },
}


class PartitionState:
    """One assigned partition. Read by the whole room, changed by ``Subscription`` only, except for
    the fields marked with their writer.

    Attributes:
        topic_partition: Which one.
        phase: See ``Phase``.
        position: Offset of the next record to hand over; None while unknown.
        position_epoch: Leader epoch of the last record handed over, -1 unknown (KIP-320).
        fetch_offset: Where the next fetch goes on: ``position`` plus what is buffered.
        fence: Counts the positions that were set; data of an earlier count is void, even where
            the new position is the old one.
        paused: Neither fetched nor handed over.
        assigned: False once it was unassigned; whoever still holds it must drop it.
        reset_to: What AWAITING_RESET looks up.
        error: Raised by the next poll, then cleared.
        failures: Tries in a row that brought nothing but an error (fetch, lookup).
        retry_at: Not to be asked for before this time.
        resets: Resets in a row, by policy, after which the offset was out of range again.
        leader_epoch: Newest leader epoch seen, -1 unknown.
        topic_id: The incarnation of the topic that the position belongs to (KIP-516).
        buffered_bytes: Of data that waits for poll. Writer: fetch_buffer.
        high_watermark, last_stable_offset, log_start_offset: As last told by the broker, -1
            unknown. Writer: fetch_reply.
        replica, replica_until: Preferred follower and until when (KIP-392). Writer: fetch_plan.
        node_id: Broker that is asked for it, None where there is none. Writer: fetch_plan.
    """

    __slots__ = (
        "assigned",
        "buffered_bytes",
        "error",
        "failures",
        "fence",
        "fetch_offset",
        "high_watermark",
        "last_stable_offset",
        "leader_epoch",
        "log_start_offset",
        "node_id",
        "paused",
        "phase",
        "position",
        "position_epoch",
        "replica",
        "replica_until",
        "reset_to",
        "resets",
        "retry_at",
        "topic_id",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.phase = Phase.NO_POSITION
        self.position: int | None = None
        self.position_epoch = -1
        self.fetch_offset: int | None = None
        self.fence = 0
        self.paused = False
        self.assigned = True
        self.reset_to = OffsetSpec.LATEST
        self.error: KafkaError | None = None
        self.failures = 0
        self.retry_at = 0.0
        self.resets = 0
        self.leader_epoch = NO_EPOCH
        self.topic_id: bytes | None = None
        self.buffered_bytes = 0
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.replica: int | None = None
        self.replica_until = 0.0
        self.node_id: int | None = None

    def __repr__(self) -> str:
        paused = ", paused" if self.paused else ""
        return f"<{self.topic_partition} {self.phase.name} at {self.position}{paused}>"

    def lag(self, *, read_committed: bool) -> int | None:
        """Records between the position and the end that this reader can see; None if unknown."""
        end = self.last_stable_offset if read_committed else self.high_watermark
        if end < 0 or self.position is None:
            return None
        return max(end - self.position, 0)


_NONE: Final[Mapping[TopicPartition, PartitionState]] = {}


def _nothing() -> None:
    """Nothing was taken."""


def _nothing_known(partition: TopicPartition) -> tuple[bytes | None, int]:
    """No view of the cluster tells of ``partition``."""
    return None, NO_EPOCH


class Subscription:
    """The assigned partitions of one consumer.

    ``on_change`` is told of the partitions whose wishes towards the brokers may have changed, so
    that nobody has to look at all of them; of many that change together at once.
    """

    __slots__ = (
        "_by_topic",
        "_failed",
        "_on_change",
        "_pending",
        "_states",
        "default_reset",
        "facts_of",
        "get",
        "on_fetched",
        "recall",
        "topics",
    )

    def __init__(
        self,
        default_reset: OffsetSpec | None,
        on_change: Callable[[Sequence[PartitionState]], None],
    ) -> None:
        """``default_reset``: where to start without a position; None makes that an error."""
        self.default_reset = default_reset
        self.topics: tuple[str, ...] = ()
        """Topics of which all partitions are to be read; empty where single ones were assigned."""
        self.recall: Callable[[], object] = _nothing
        """Gives back what was taken and not handed over yet. Called before a position is set: what
        was taken for the old one must not be handed over after that."""
        self.facts_of: Callable[[TopicPartition], tuple[bytes | None, int]] = _nothing_known
        """What the view tells of a partition that is assigned now: as ``see`` is told later."""
        self.on_fetched: Callable[[PartitionState], None] = lambda state: on_change((state,))
        """Told of a partition that is asked for at a later offset, and in nothing else changed."""
        self._on_change = on_change
        self._states: dict[TopicPartition, PartitionState] = {}
        self.get: Callable[[TopicPartition], PartitionState | None] = self._states.get
        """The state of a partition; None if it isn't assigned."""
        self._by_topic: dict[str, dict[TopicPartition, PartitionState]] = {}
        self._failed: dict[TopicPartition, PartitionState] = {}
        self._pending: dict[TopicPartition, PartitionState] = {}

    # Reading

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(self._states.values())

    def __contains__(self, partition: object) -> bool:
        return partition in self._states

    def require(self, partition: TopicPartition) -> PartitionState:
        """The state of ``partition``, or InvalidArgument saying that it isn't assigned."""
        state = self._states.get(partition)
        if state is None:
            raise InvalidArgument(
                f"{partition[0]}-{partition[1]} is not assigned to this consumer",
                hint="call assign() with it first, or name its topic when making the consumer",
            )
        return state

    def assigned_topics(self) -> list[str]:
        """Names of the topics that partitions are assigned of, each once."""
        return list(self._by_topic)

    def of_topic(self, topic: str) -> Collection[PartitionState]:
        """The assigned partitions of one topic."""
        return self._by_topic.get(topic, _NONE).values()

    def without_position(self) -> list[TopicPartition]:
        """Partitions that poll can't read before someone says where to start."""
        return [
            state.topic_partition
            for state in self._pending.values()
            if state.phase is Phase.NO_POSITION and not state.paused
        ]

    def pending(self, phase: Phase) -> list[PartitionState]:
        """The partitions in ``phase``, which is not FETCHING."""
        return [state for state in self._pending.values() if state.phase is phase]

    @property
    def settled(self) -> bool:
        """Whether every partition is FETCHING."""
        return not self._pending

    # The assignment

    def assign(self, partitions: Iterable[TopicPartition]) -> list[PartitionState]:
        """Replace the assignment; partitions that stay keep all they have. Returns the removed."""
        self.recall()
        wanted = dict.fromkeys(partitions)
        removed = [state for tp, state in self._states.items() if tp not in wanted]
        for state in removed:
            self._remove(state)
        new = [partition for partition in wanted if partition not in self._states]
        added = [self._add(partition, self.default_reset) for partition in new]
        if removed or added:
            self._on_change(removed + added)
        return removed

    def add_new(self, partition: TopicPartition) -> None:
        """Also assign a partition that came into being while its topic was being read.

        All of it is new, so it is read from its beginning whatever the policy says.
        """
        if partition not in self._states:
            self._on_change((self._add(partition, OffsetSpec.EARLIEST),))

    def remove(self, state: PartitionState) -> None:
        """Take one partition away, as it isn't there any more."""
        self.recall()
        self._remove(state)
        self._on_change((state,))

    def _add(self, partition: TopicPartition, reset: OffsetSpec | None) -> PartitionState:
        state = PartitionState(partition)
        self._states[partition] = state
        self._by_topic.setdefault(partition[0], {})[partition] = state
        state.topic_id, state.leader_epoch = self.facts_of(partition)
        self._pending[partition] = state
        if reset is not None:
            self._apply(state, PhaseEvent.RESET_ASKED)
            state.reset_to = reset
        return state

    def _remove(self, state: PartitionState) -> None:
        state.assigned = False
        partition = state.topic_partition
        del self._states[partition]
        others = self._by_topic[partition[0]]
        del others[partition]
        if not others:
            del self._by_topic[partition[0]]
        self._failed.pop(partition, None)
        self._pending.pop(partition, None)

    # Positions

    def seek(self, state: PartitionState, offset: int, leader_epoch: int = -1) -> None:
        """The user gives the next offset to read."""
        self.recall()
        self._apply(state, PhaseEvent.SOUGHT)
        self._place(state, offset, leader_epoch)

    def ask_reset(self, state: PartitionState, to: OffsetSpec) -> None:
        """Look the position up anew; what is buffered belongs to the old one."""
        self.recall()
        self._apply(state, PhaseEvent.RESET_ASKED)
        state.reset_to = to
        self._place(state, None)

    def reset_out_of_range(self, state: PartitionState, to: OffsetSpec) -> bool:
        """The leader has nothing at this offset. True where it wasn't the first time in a row.

        Then the lookup and the fetch contradict each other, and should not do so in a rush.
        """
        again = state.resets
        self.ask_reset(state, to)
        state.resets = again + 1
        state.failures = again
        return again > 0

    def in_range(self, state: PartitionState) -> None:
        """The broker has the offset that was asked for."""
        state.failures = state.resets = 0

    def lose_position(self, state: PartitionState) -> OffsetSpec | None:
        """The position means nothing any more: reset it by policy. None if there is no policy."""
        if self.default_reset is not None:
            self.ask_reset(state, self.default_reset)
        else:
            self.recall()
            self._apply(state, PhaseEvent.POSITION_LOST)
            self._place(state, None)
        return self.default_reset

    def finish_resets(
        self, answers: Iterable[tuple[PartitionState, int, int, int]]
    ) -> list[PartitionState]:
        """The answers of a lookup. Returns the partitions of those that don't come too late.

        Each answer is of (partition, fence, offset, leader epoch). The fence is the partition's
        from when it was asked: the same question asked again wants another answer, since the end
        moves, and a topic may have been made anew.
        """
        placed = []
        waiting, done = Phase.AWAITING_RESET, PhaseEvent.RESET_DONE
        for state, fence, offset, leader_epoch in answers:
            if state.assigned and state.phase is waiting and state.fence == fence:
                self._apply(state, done)
                self._set(state, offset, leader_epoch)
                placed.append(state)
        if placed:
            self._on_change(placed)
        return placed

    def advance(self, state: PartitionState, offset: int, leader_epoch: int) -> None:
        """Records up to ``offset`` are handed over, or skipped since nobody may see them."""
        if offset != state.position:
            state.failures = 0  # to have looked at a batch is no progress: it may fail yet
        state.position = offset
        if leader_epoch >= 0:
            state.position_epoch = leader_epoch

    def fetched_to(self, state: PartitionState, offset: int) -> None:
        """Data up to ``offset`` is buffered."""
        state.fetch_offset = offset
        state.resets = 0
        self.on_fetched(state)

    def rewind_fetch(self, state: PartitionState) -> None:
        """What was buffered beyond the position is gone: fetch it again."""
        state.fetch_offset = state.position
        self._on_change((state,))

    def fetch_anew(self, state: PartitionState) -> None:
        """The log has the position, but maybe not what was taken or buffered beyond it."""
        position, epoch = state.position, state.position_epoch
        if position is not None:
            self.seek(state, position, epoch)

    def see(self, state: PartitionState, topic_id: bytes | None, leader_epoch: int) -> bool:
        """The view of the cluster tells of the partition. True where its topic was made anew.

        Then the position is one of a log that is gone, and epochs begin again.

        An epoch above that of the last record read means another leader, whose log may part from
        the one that was read. The view takes an epoch back only where a higher one was wrong;
        brokers refuse whoever names an epoch that never was, so it is taken back here too.

        Args:
            state: The partition.
            topic_id: None where the view knows none; nothing is learnt from that.
            leader_epoch: Likewise, below 0.
        """
        before = state.topic_id
        another = topic_id is not None and topic_id != before
        made_anew = another and before is not None
        if another:
            state.topic_id = topic_id
        if made_anew:
            state.leader_epoch = NO_EPOCH
            state.high_watermark = state.last_stable_offset = state.log_start_offset = -1
            self.lose_position(state)
        if leader_epoch >= 0 and leader_epoch != state.leader_epoch:
            another = True
            state.leader_epoch = leader_epoch
            read_before = 0 <= state.position_epoch < leader_epoch
            if state.phase is Phase.VALIDATING or (read_before and state.phase is Phase.FETCHING):
                self._apply(state, PhaseEvent.LEADER_CHANGED)
        if another and state.position is not None:  # else nothing is asked for
            self._on_change((state,))
        return made_anew

    def finish_validation(self, state: PartitionState, leader_epoch: int) -> None:
        """The log of the leader of ``leader_epoch`` contains the position."""
        if state.assigned and state.phase is Phase.VALIDATING:
            if leader_epoch == state.leader_epoch:
                self._apply(state, PhaseEvent.VALIDATED)
                state.failures = 0
                self._on_change((state,))

    # Pausing, failing

    def pause(self, state: PartitionState) -> None:
        """Stop fetching and handing over; twice is once."""
        if not state.paused:
            state.paused = True
            self._on_change((state,))

    def resume(self, state: PartitionState) -> None:
        """Go on; nothing happens to a partition that isn't paused."""
        if state.paused:
            state.paused = False
            self._on_change((state,))

    def back_off(self, state: PartitionState, until: float) -> None:
        """Don't ask a broker for it before ``until``."""
        state.failures += 1
        state.retry_at = until
        self._on_change((state,))

    def retry_now(self, state: PartitionState) -> None:
        """What it backed off from is settled."""
        state.retry_at = 0.0
        self._on_change((state,))

    def fail(self, state: PartitionState, error: KafkaError) -> None:
        """Keep ``error`` for the next poll."""
        if state.assigned:
            state.error = error
            self._failed[state.topic_partition] = state
            self._on_change((state,))

    @property
    def has_error(self) -> bool:
        """Whether ``take_error`` has one."""
        return any(not state.paused for state in self._failed.values())

    def take_error(self) -> KafkaError | None:
        """The oldest error that poll has to raise, once; those of paused partitions wait."""
        for partition, state in self._failed.items():
            if not state.paused:
                del self._failed[partition]
                error, state.error = state.error, None
                return error
        return None

    def take_error_of(self, state: PartitionState) -> KafkaError | None:
        """The error that waits for one partition, once."""
        self._failed.pop(state.topic_partition, None)
        error, state.error = state.error, None
        return error

    def _place(self, state: PartitionState, offset: int | None, leader_epoch: int = -1) -> None:
        self._set(state, offset, leader_epoch)
        self._on_change((state,))

    def _set(self, state: PartitionState, offset: int | None, leader_epoch: int) -> None:
        """Where it stands from now on, and all trouble with where it stood is forgotten."""
        state.fence += 1
        state.position = state.fetch_offset = offset
        state.position_epoch = leader_epoch
        state.retry_at = 0.0
        state.failures = 0
        state.error = None
        if self._failed:
            self._failed.pop(state.topic_partition, None)

    def _apply(self, state: PartitionState, event: PhaseEvent) -> None:
        state.phase = step(TRANSITIONS, state.phase, event)
        if state.phase is Phase.FETCHING:
            self._pending.pop(state.topic_partition, None)
        else:
            self._pending[state.topic_partition] = state
