"""The assigned partitions and their positions, sans-IO: the one writer of positions.

The consumer's calls (assign, seek, pause), the offset lookups and the fetch buffer all change a
partition through the methods here; its phases are in ``partition_state``. ``positions`` and
``committed_offsets`` query it for partitions that need a lookup, ``fetch_scheduler`` for those that
can be fetched. It makes no decisions about brokers or groups: ``rebalance`` assigns and revokes
partitions as the application's ``assign`` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kclient.cluster.topic import NO_EPOCH
from kclient.consumer.partition_state import TRANSITIONS, PartitionState, Phase, PhaseEvent
from kclient.errors import InvalidArgument
from kclient.transitions import step
from kclient.types import OffsetSpec, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from kclient.consumer.offset_reset import Reset
    from kclient.errors import KafkaError
    from kclient.record import Record


_NONE: Final[Mapping[TopicPartition, PartitionState]] = {}


class Subscription:
    """The assigned partitions of one consumer.

    Attributes:
        topics: Topics of which all partitions are to be read; empty where single ones were
            assigned.
        grouped: The group's coordinator may know where to begin, or assigns the partitions itself.
        expecting: Partitions may come: of topics that are subscribed to in a group.
        poll_count: Counts the calls of the application, and waits in them while no records are
            outstanding; records returned before the latest one are finished.
        recall: Gives back records that were taken and not returned yet. Called before a position is
            set: what was taken for the old one must not be returned after that.
        get: The state of a partition; None if it isn't assigned.
    """

    def __init__(
        self,
        default_reset: Reset | None,
        on_change: Callable[[Sequence[PartitionState]], None],
        *,
        recall: Callable[[], object],
        facts_of: Callable[[TopicPartition], tuple[bytes | None, int]],
        dismisses: Callable[[KafkaError], bool],
        grouped: bool,
    ) -> None:
        """
        Args:
            default_reset: Where to start without a position; None makes that an error.
            on_change: Called with the partitions whose fetch requests may have changed, so that
                nothing has to examine all of them; once for many that change together.
            recall, grouped: See the attributes.
            facts_of: Topic id and leader epoch, in the view, of a partition that is assigned now;
                later ones come through ``update_metadata``.
            dismisses: Whether an error of a partition is not for the next poll.
        """
        self.default_reset = default_reset
        self.topics: tuple[str, ...] = ()
        self.grouped = grouped
        self.expecting = False
        self.poll_count = 0
        self.recall = recall
        self._facts_of = facts_of
        self._dismisses = dismisses
        self._on_change = on_change
        self._states: dict[TopicPartition, PartitionState] = {}
        self.get: Callable[[TopicPartition], PartitionState | None] = self._states.get
        self._by_topic: dict[str, dict[TopicPartition, PartitionState]] = {}
        self._failed: dict[TopicPartition, PartitionState] = {}
        self._pending: dict[TopicPartition, PartitionState] = {}
        self._said: dict[PartitionState, int] = {}

    # Reading

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(self._states.values())

    def __contains__(self, partition: object) -> bool:
        return partition in self._states

    def require(self, partition: TopicPartition) -> PartitionState:
        """The state of ``partition``; raises InvalidArgument if it isn't assigned."""
        state = self._states.get(partition)
        if state is None:
            if self.expecting:
                hint = "the group assigns them: see `assignment`; on_assigned gets new ones"
            elif self.grouped:
                hint = "call subscribe() first, or assign() with it"
            else:
                hint = "call assign() with it first, or name its topic when making the consumer"
            raise InvalidArgument(
                f"{partition[0]}-{partition[1]} is not assigned to this consumer", hint=hint
            )
        return state

    def assigned_topics(self) -> list[str]:
        """Names of the topics of the assigned partitions, each once."""
        return list(self._by_topic)

    def of_topic(self, topic: str) -> Collection[PartitionState]:
        """The assigned partitions of one topic."""
        return self._by_topic.get(topic, _NONE).values()

    def without_position(self) -> list[PartitionState]:
        """Partitions that poll can't read before a start position is set."""
        return [state for state in self.pending(Phase.NO_POSITION) if not state.paused]

    def pending(self, phase: Phase) -> list[PartitionState]:
        """The partitions in ``phase``, which is not FETCHING."""
        return [state for state in self._pending.values() if state.phase is phase]

    @property
    def settled(self) -> bool:
        """Whether every partition is FETCHING."""
        return not self._pending

    # The assignment

    def assign(self, partitions: Iterable[TopicPartition], topics: Iterable[str] = ()) -> None:
        """Replace the assignment; partitions that stay keep all their state.

        ``topics``: those of which these are all partitions, and new ones are to be read, too.
        """
        self.recall()
        self.topics = tuple(topics)
        wanted = dict.fromkeys(partitions)
        removed = [state for tp, state in self._states.items() if tp not in wanted]
        for state in removed:
            self._remove(state)
        new = [partition for partition in wanted if partition not in self._states]
        added = [self._add(partition, self.default_reset) for partition in new]
        if removed or added:
            self._on_change(removed + added)

    def give(self, partitions: Iterable[TopicPartition]) -> list[PartitionState]:
        """Also assign these, for the group; they are held until ``release``."""
        added = []
        for partition in partitions:
            if partition not in self._states:
                state = self._add(partition, self.default_reset)
                state.held = state.paused = True
                added.append(state)
        if added:
            self._on_change(added)
        return added

    def take_back(self, partitions: Iterable[TopicPartition]) -> None:
        """Revoke ``partitions`` for the group, those of them that are assigned."""
        self.recall()
        found = map(self._states.get, dict.fromkeys(partitions))
        removed = [state for state in found if state is not None]
        for state in removed:
            self._remove(state)
        if removed:
            self._on_change(removed)

    def add_new(self, partition: TopicPartition) -> None:
        """Also assign a partition that was created while its topic was being read.

        All of it is new, so it is read from its beginning whatever the policy says.
        """
        if partition not in self._states:
            state = self._add(partition, OffsetSpec.EARLIEST, grouped=False)
            self._on_change((state,))

    def remove(self, state: PartitionState) -> None:
        """Unassign one partition, as it doesn't exist any more."""
        self.recall()
        self._remove(state)
        self._on_change((state,))

    def _add(
        self, partition: TopicPartition, reset: Reset | None, *, grouped: bool | None = None
    ) -> PartitionState:
        state = PartitionState(partition)
        self._states[partition] = state
        self._by_topic.setdefault(partition[0], {})[partition] = state
        state.topic_id, state.leader_epoch = self._facts_of(partition)
        self._pending[partition] = state
        if self.grouped if grouped is None else grouped:
            self._apply(state, PhaseEvent.GROUP_ASKED)
        elif reset is not None:
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
        self._said.pop(state, None)

    # Positions

    def seek(
        self,
        state: PartitionState,
        offset: int,
        leader_epoch: int = -1,
        *,
        by_user: bool = True,
        finished: tuple[int, int] | None = None,
    ) -> None:
        """Set the next offset to read.

        Args:
            state: The partition.
            offset, leader_epoch: The position.
            by_user: The application sets it, so it is not committed before records are consumed
                from there; else the log was cut there, or data is fetched again.
            finished: Offset and leader epoch up to which the application finished before.
        """
        self.recall()
        if by_user:
            state.poll_count = -1
            self._begin(state, offset, finished)
        elif state.position is None or offset < state.position:
            if state.position == state.base:
                state.base = offset
            if state.kept is not None and state.kept[0] > offset:
                state.kept = (offset, leader_epoch)
        self._apply(state, PhaseEvent.SOUGHT)
        self._place(state, offset, leader_epoch)

    def ask_reset(
        self,
        state: PartitionState,
        to: Reset,
        *,
        by_user: bool = False,
        finished: tuple[int, int] | None = None,
    ) -> None:
        """Have the position looked up again; what is buffered belongs to the old one.

        ``finished``: as with ``seek``.
        """
        self.recall()
        self._begin(state, None, finished)
        if by_user:
            state.poll_count = -1
        else:
            state.chosen = not state.explicit
        self._apply(state, PhaseEvent.RESET_ASKED)
        state.reset_to = to
        self._place(state, None)

    def reset_out_of_range(self, state: PartitionState, to: Reset) -> bool:
        """Reset, as the leader has nothing at this offset. True if this isn't the first in a row.

        Then the lookup and the fetch contradict each other, and should not do so without delay.
        """
        again = state.resets
        self.ask_reset(state, to)
        state.resets = again + 1
        state.failures = again
        return again > 0

    def in_range(self, state: PartitionState) -> None:
        """Record that the broker has the requested offset."""
        state.failures = state.resets = 0

    def lose_position(self, state: PartitionState) -> None:
        """Drop a position that is void: reset it by policy, if there is one."""
        if self.default_reset is not None:
            self.ask_reset(state, self.default_reset)
        else:
            self.recall()
            self._begin(state, None, None)
            self._apply(state, PhaseEvent.POSITION_LOST)
            self._place(state, None)

    def finish_resets(
        self, answers: Iterable[tuple[PartitionState, int, int, int]]
    ) -> list[PartitionState]:
        """Apply the results of a lookup. Returns the partitions whose results don't come too late.

        Each result is (partition, position version, offset, leader epoch). The version is the
        partition's at the time of the request: after another reset the same lookup needs another
        result, since the end moves, and a topic may have been recreated.
        """
        placed = []
        waiting, done = Phase.AWAITING_RESET, PhaseEvent.RESET_DONE
        for state, position_version, offset, leader_epoch in answers:
            if (
                state.assigned
                and state.phase is waiting
                and state.position_version == position_version
            ):
                self._apply(state, done)
                chosen = state.chosen
                self._begin(state, offset, (offset, leader_epoch) if chosen else state.kept)
                self._set(state, offset, leader_epoch)
                placed.append(state)
        if placed:
            self._on_change(placed)
        return placed

    def committed_found(
        self, state: PartitionState, position_version: int, offset: int, leader_epoch: int
    ) -> bool:
        """Begin at ``offset``, which the group has committed. False where it comes too late."""
        if not self._awaits_committed(state, position_version):
            return False
        self._apply(state, PhaseEvent.COMMITTED_FOUND)
        self._begin(state, offset, None)
        self._set(state, offset, leader_epoch)
        if 0 <= leader_epoch < state.leader_epoch:
            self._apply(state, PhaseEvent.LEADER_CHANGED)
        self._on_change((state,))
        return True

    def nothing_committed(self, state: PartitionState, position_version: int) -> bool:
        """Apply the reset policy, as the group has committed nothing. False if it is too late."""
        if not self._awaits_committed(state, position_version):
            return False
        self._apply(state, PhaseEvent.NOTHING_COMMITTED)
        if self.default_reset is not None:
            self._apply(state, PhaseEvent.RESET_ASKED)
            state.reset_to = self.default_reset
            state.chosen = not state.explicit
        self._place(state, None)
        return True

    def _awaits_committed(self, state: PartitionState, position_version: int) -> bool:
        awaits = (
            state.phase is Phase.AWAITING_COMMITTED and state.position_version == position_version
        )
        return awaits and state.assigned

    def finished(
        self, state: PartitionState, in_hand: Record | None = None
    ) -> tuple[int, int] | None:
        """Offset and leader epoch for an automatic commit; None for no commit.

        That is the offset up to which the application has finished what it consumed since
        ``state.base``, else ``state.kept``. The caller has called ``recall``: records that were
        taken and not returned are not finished.
        """
        at = self.reached(state, in_hand)
        return state.kept if at is None or at[0] == state.base else at

    @staticmethod
    def passed(
        state: PartitionState, first: tuple[int, int] | None = None
    ) -> tuple[int, int] | None:
        """As ``finished``, where all before ``first``, by default the position, is finished."""
        if first is None and state.position is not None:
            first = (state.position, state.position_epoch)
        if first is None or first[0] == state.base:
            return state.kept
        if state.explicit and state.base is not None and first[0] < state.base:
            return state.kept  # it was returned before the explicit commit
        return first

    @staticmethod
    def _begin(state: PartitionState, base: int | None, kept: tuple[int, int] | None) -> None:
        """Nothing was consumed from ``base`` on yet; an explicit commit is kept until then."""
        state.explicit = state.explicit and state.position == state.base
        state.chosen = False
        state.base, state.kept = base, kept

    def on_explicit_commit(self, partition: TopicPartition) -> None:
        """The application committed an offset: automatic commits wait for what it consumes next.

        The caller has called ``recall``.
        """
        state = self._states.get(partition)
        if state is not None:
            self._begin(state, state.position, None)
            state.explicit = True

    def reached(
        self, state: PartitionState, in_hand: Record | None = None
    ) -> tuple[int, int] | None:
        """As ``finished``, but for a position from which nothing was consumed yet: that counts."""
        if state.position is None:
            return None
        position = (state.position, state.position_epoch)
        if state.poll_count != self.poll_count or state.finished is None:
            return position
        finished = (state.finished, state.finished_epoch)
        if in_hand is not None:
            if in_hand.topic_partition != state.topic_partition:
                return position
            if in_hand.offset > state.finished:
                epoch = in_hand.leader_epoch
                finished = (in_hand.offset, -1 if epoch is None else epoch)
        return min(finished, position)  # the log may have been cut

    def finish(
        self, partition: TopicPartition, offset: int, leader_epoch: int, *, at_least: bool
    ) -> None:
        """Record how far the application has finished the latest records, as it commits that."""
        state = self._states.get(partition)
        if state is None or state.poll_count != self.poll_count or state.finished is None:
            return
        if not at_least or offset > state.finished:
            state.finished, state.finished_epoch = offset, leader_epoch
        self._said[state] = self.poll_count

    def on_poll(self) -> None:
        """Count a call, or a wait in one: all records returned before are finished."""
        self.poll_count += 1

    def finish_all(self) -> None:
        """Finish all returned records, except where a commit by the application set an offset."""
        committed = [
            one
            for one, poll_count in self._said.items()
            if poll_count == one.poll_count == self.poll_count
        ]
        self._said.clear()
        self.on_poll()
        for state in committed:
            state.poll_count = self.poll_count

    def advance(
        self, state: PartitionState, offset: int, leader_epoch: int, *, handed: bool = True
    ) -> None:
        """Move the position to ``offset``: records were returned, or skipped as not visible.

        ``handed``: False where there was none to return; an explicit commit outlasts that.
        """
        if handed:
            state.former_id = None  # what is committed from now on was read from the new topic
        elif state.explicit and state.position == state.base:
            state.base = offset
        if state.poll_count != self.poll_count:
            state.poll_count = self.poll_count
            state.finished, state.finished_epoch = state.position, state.position_epoch
        if offset != state.position:
            state.failures = 0  # reading a batch alone is no progress: it may fail yet
        state.position = offset
        if leader_epoch >= 0:
            state.position_epoch = leader_epoch

    def fetched_to(self, state: PartitionState, offset: int) -> None:
        """Record that data up to ``offset`` is buffered; the caller has more fetched from there."""
        state.fetch_offset = offset
        state.resets = 0

    def rewind_fetch(self, state: PartitionState) -> None:
        """Fetch again from the position on, as what was buffered beyond it was dropped."""
        state.fetch_offset = state.position
        self._on_change((state,))

    def fetch_anew(self, state: PartitionState) -> None:
        """Fetch again what was taken or buffered beyond the position, which the log still has."""
        position, epoch = state.position, state.position_epoch
        if position is not None:
            self.seek(state, position, epoch, by_user=False)

    def update_metadata(
        self, state: PartitionState, topic_id: bytes | None, leader_epoch: int
    ) -> bool:
        """Apply the view's topic id and leader epoch. True where the topic was recreated.

        Then the position is one of a deleted log, and epochs begin again.

        An epoch above that of the last record read means another leader, whose log may diverge from
        the one that was read. The view takes an epoch back only where a higher one was wrong;
        brokers refuse requests with an epoch that never was, so it is taken back here too.

        Args:
            state: The partition.
            topic_id: None where the view knows none; the present one is kept then.
            leader_epoch: Likewise, below 0.
        """
        before = state.topic_id
        another = topic_id is not None and topic_id != before
        recreated = another and before is not None
        if another:
            state.topic_id = topic_id
        if recreated:
            state.former_id = before
            state.explicit = False  # brokers delete the offsets of a topic with it
            state.leader_epoch = NO_EPOCH
            state.high_watermark = state.last_stable_offset = state.log_start_offset = -1
            self.lose_position(state)
        if leader_epoch >= 0 and leader_epoch != state.leader_epoch:
            another = True
            state.leader_epoch = leader_epoch
            read_before = 0 <= state.position_epoch < leader_epoch
            if state.phase is Phase.VALIDATING or (read_before and state.phase is Phase.FETCHING):
                self._apply(state, PhaseEvent.LEADER_CHANGED)
        if another and state.position is not None:  # else nothing is fetched
            self._on_change((state,))
        return recreated

    def finish_validation(self, state: PartitionState, leader_epoch: int) -> None:
        """Resume fetching: the log of the leader of ``leader_epoch`` contains the position."""
        if state.assigned and state.phase is Phase.VALIDATING:
            if leader_epoch == state.leader_epoch:
                self._apply(state, PhaseEvent.VALIDATED)
                state.failures = 0
                self._on_change((state,))

    # Pausing, failing

    def pause(self, state: PartitionState) -> None:
        """Stop fetching and returning records; pausing twice is pausing once."""
        state.kept_back = True
        self._rest((state,))

    def resume(self, state: PartitionState) -> None:
        """Resume; does nothing for a partition that isn't paused."""
        state.kept_back = False
        self._rest((state,))

    def hold(self, states: Iterable[PartitionState]) -> None:
        """As ``pause``, for the group: a pause by the application is kept apart."""
        self.recall()
        held = list(states)
        for state in held:
            state.held = True
        self._rest(held)

    def release(self, states: Iterable[PartitionState]) -> None:
        """Undo ``hold``."""
        released = [state for state in states if state.assigned]
        for state in released:
            state.held = False
        self._rest(released)

    def crowd(self, state: PartitionState, *, crowded: bool) -> None:
        """As ``pause`` and ``resume``, for the run that passes records to handlers."""
        state.crowded = crowded
        self._rest((state,))

    def _rest(self, states: Iterable[PartitionState]) -> None:
        """Update whether ``states`` are paused, by the application, the group or handlers."""
        changed = []
        for state in states:
            rests = state.kept_back or state.held or state.crowded
            if state.paused is not rests:
                state.paused = rests
                state.restarts += not rests
                changed.append(state)
        if changed:
            self._on_change(changed)

    def back_off(self, state: PartitionState, until: float) -> None:
        """Send no request for it before ``until``."""
        state.failures += 1
        state.retry_at = until
        self._on_change((state,))

    def retry_now(self, state: PartitionState) -> None:
        """End its back-off, as the reason for it doesn't apply any more."""
        state.retry_at = 0.0
        self._on_change((state,))

    def fail(self, state: PartitionState, error: KafkaError) -> None:
        """Keep ``error`` for the next poll, unless it is dismissed."""
        if state.assigned and not self._dismisses(error):
            state.error = error
            state.restarts += 1
            self._failed[state.topic_partition] = state
            self._on_change((state,))

    @property
    def has_error(self) -> bool:
        """Whether ``take_error`` has one."""
        return any(not state.paused for state in self._failed.values())

    def take_error(self) -> KafkaError | None:
        """Take the oldest error that poll has to raise; those of paused partitions wait."""
        for state in self._failed.values():
            if not state.paused:
                return self.take_error_of(state)
        return None

    def take_error_of(self, state: PartitionState) -> KafkaError | None:
        """Take the pending error of one partition."""
        self._failed.pop(state.topic_partition, None)
        error, state.error = state.error, None
        return error

    def _place(self, state: PartitionState, offset: int | None, leader_epoch: int = -1) -> None:
        self._set(state, offset, leader_epoch)
        self._on_change((state,))

    def _set(self, state: PartitionState, offset: int | None, leader_epoch: int) -> None:
        """Set the position, and forget all errors of the previous one."""
        state.position_version += 1
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
