"""A group shard without a broker: a list as its log, a manual clock, responses in lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.join_group import JoinGroupResponse
from kclient.protocol.messages.leave_group import MemberIdentity, MemberResponse
from kclient.protocol.messages.sync_group import SyncGroupResponse
from kclient.testing.broker_configs import GroupSettings
from kclient.testing.groups import records
from kclient.testing.groups.classic_group import ClassicGroup, State
from kclient.testing.groups.joins import JoinRequest
from kclient.testing.groups.offsets import CommitEntry, CommitRequest
from kclient.testing.groups.records import Stored
from kclient.testing.groups.shard import Shard
from kclient.testing.log_state import Marker, ProducerIdentity
from kclient.testing.timers import DeadlineQueue, Moment
from tests.unit.testing import group_calls

TOPIC_ID = bytes(15) + b"\x07"
START_MS = 1_700_000_000_000


class Rig:
    """A shard of groups.

    Attributes:
        log: Appended records, as (key, value).
        batches: What was appended, with markers.
        slow: Appends wait for `commit_all`.
        refuse: The error of all appends, unless it is NONE.
        topics: Existing topics, and their ids.
        unstable: Partitions without a stable offset, by the last fetch.
    """

    def __init__(self, **settings: int) -> None:
        self.settings = GroupSettings(**settings)
        self.deadlines = DeadlineQueue()
        self.log: list[tuple[bytes, bytes | None]] = []
        self.batches: list[bytes] = []
        self.slow = False
        self.refuse = ErrorCode.NONE
        self.topics = {"t": TOPIC_ID}
        self.now = 100.0
        self.unstable: set[tuple[str, int]] = set()
        self._ids = 0
        self._waiting: list[Callable[[ErrorCode, Moment], None]] = []
        self.shard = Shard(self, self._append, 0)
        self.shard.load((), self.moment)

    # What the shard calls.

    def new_id(self) -> str:
        self._ids += 1
        return f"id{self._ids}"

    def topic_id(self, topic: str) -> bytes | None:
        return self.topics.get(topic)

    def _append(self, batch: bytes, done: Callable[[ErrorCode, Moment], None]) -> None:
        if self.refuse is not ErrorCode.NONE:
            done(self.refuse, self.moment)
            return
        self.batches.append(batch)
        stored = records.decode_batches([batch])
        self.log += [records.encode(one.record) for one in stored if isinstance(one, Stored)]
        if self.slow:
            self._waiting.append(done)
        else:
            done(ErrorCode.NONE, self.moment)

    def commit_all(self, code: ErrorCode = ErrorCode.NONE) -> None:
        """Complete all waiting appends with ``code``, as replication does."""
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(code, self.moment)

    # Time

    @property
    def moment(self) -> Moment:
        return Moment(self.now, START_MS + round(self.now * 1000))

    def pass_time(self, seconds: float) -> None:
        """Advance the clock, and run all deadlines on the way."""
        end = self.now + seconds
        while (at := self.deadlines.next_at) is not None and at <= end:
            self.now = max(at, self.now)
            self.deadlines.run(self.moment)
        self.now = end

    # Groups

    def group(self, name: str = "g") -> ClassicGroup:
        return self.shard.groups[name]

    @property
    def state(self) -> State:
        return self.group().state

    def reload(self) -> Rig:
        """Return another shard that takes over, loaded from this one's log."""
        other = Rig()
        other.settings, other.topics, other.now = self.settings, self.topics, self.now
        other.shard = Shard(other, other._append, 1)
        other.log, other.batches = list(self.log), list(self.batches)
        other._ids = self._ids + 1000
        other.shard.load(other.batches, other.moment)
        return other

    # Requests

    def join(
        self, member_id: str = "", *, group: str = "g", version: int = 9, **options: Any
    ) -> list[JoinGroupResponse]:
        """Join; the list gets the response once it is there."""
        answers: list[JoinGroupResponse] = []
        request = group_calls.join(group, member_id, **options)
        call = JoinRequest(request, version, "client", "/127.0.0.1", answers.append)
        self.shard.join(call, self.moment)
        return answers

    def enter(self, **options: Any) -> list[JoinGroupResponse]:
        """Join as a new member, in both steps of KIP-394; the second may have to wait."""
        (first,) = self.join(**options)
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return self.join(first.member_id, **options)

    def sync(
        self, generation: int, member_id: str, group: str = "g", **options: Any
    ) -> list[SyncGroupResponse]:
        answers: list[SyncGroupResponse] = []
        request = group_calls.sync(group, generation, member_id, **options)
        self.shard.sync(request, answers.append, self.moment)
        return answers

    def beat(self, generation: int, member_id: str, instance: str | None = None) -> ErrorCode:
        return self.shard.heartbeat(
            group_calls.beat("g", generation, member_id, instance), self.moment
        )

    def leave(self, *members: str | MemberIdentity) -> list[ErrorCode]:
        answers: list[tuple[ErrorCode, list[MemberResponse]]] = []
        named = group_calls.leave("g", *members).members
        self.shard.leave("g", named, lambda code, left: answers.append((code, left)), self.moment)
        if not answers:
            return []
        ((code, left),) = answers
        return [ErrorCode(one.error_code) for one in left] if not code else [code]

    def alone(self, **options: Any) -> tuple[str, int]:
        """Make a stable group of one; return its member id and generation."""
        answers = self.enter(**options)
        self.pass_time(self.settings.initial_rebalance_delay_ms / 1000)
        (joined,) = answers
        member_id, generation = joined.member_id, joined.generation_id
        self.sync(
            generation,
            member_id,
            protocol=joined.protocol_name,
            protocol_type=joined.protocol_type,
            **{member_id: b"all"},
        )
        assert self.state is State.STABLE
        return member_id, generation

    def pair(self, **options: Any) -> tuple[str, str, int]:
        """Make a stable group of two; return the leader's id, the other's, and the generation."""
        leader, _ = self.alone(**options)
        other = self.enter(**options)
        (led,) = self.join(leader, **options)
        (joined,) = other
        generation = led.generation_id
        waiting = self.sync(generation, joined.member_id, protocol=led.protocol_name)
        given = {leader: b"first", joined.member_id: b"second"}
        self.sync(generation, leader, protocol=led.protocol_name, **given)
        assert waiting[0].assignment == b"second"
        return leader, joined.member_id, generation

    # Offsets

    def commit(
        self,
        offset: int,
        *,
        group: str = "g",
        topic: str = "t",
        partition: int = 0,
        member_id: str = "",
        instance: str | None = None,
        generation: int = -1,
        metadata: str | None = "",
        retention_ms: int = -1,
        version: int = 10,
        producer: int | None = None,
    ) -> list[ErrorCode]:
        """Commit an offset, with a transaction of ``producer``; the list gets the error code."""
        answers: list[ErrorCode] = []
        of = None if producer is None else ProducerIdentity(producer, 0)
        request = CommitRequest(group, member_id, instance, generation, retention_ms, version, of)
        topic_id = self.topics.get(topic, TOPIC_ID)
        entry = CommitEntry(topic, topic_id, partition, offset, -1, metadata)
        self.shard.commit(request, [entry], answers.extend, self.moment)
        return answers

    def end(self, producer: int, committed: bool) -> None:
        """The marker of a producer's transaction is appended, and committed."""
        self.batches.append(Marker(producer, 0, 0, committed, 0).encode(self.moment.wall_ms))
        self.shard.end_transaction(producer, committed)

    def fetch(
        self, group: str = "g", *, stable: bool = False
    ) -> list[dict[tuple[str, int], int] | ErrorCode]:
        """Return committed offsets, or the error."""
        answers: list[dict[tuple[str, int], int] | ErrorCode] = []

        def reply(code: ErrorCode, found: Any, unstable: set[tuple[str, int]]) -> None:
            offsets = {
                (topic, index): one.offset
                for topic, partitions in found.items()
                for index, one in partitions.items()
            }
            self.unstable = unstable
            answers.append(code or offsets)

        self.shard.fetch(group, stable, reply, self.moment)
        return answers

    def delete_offsets(self, *entries: tuple[str, int], group: str = "g") -> list[ErrorCode]:
        """Return a code per entry, or one for the group."""
        answers: list[ErrorCode] = []
        self.shard.delete_offsets(group, entries, answers.extend, answers.append, self.moment)
        return answers

    def delete_group(self, group: str = "g") -> list[ErrorCode]:
        answers: list[ErrorCode] = []
        self.shard.delete_group(group, answers.append, self.moment)
        return answers


def codes(answers: list) -> list[ErrorCode]:
    return [ErrorCode(one.error_code) for one in answers]


def entered(rig: Rig, **options: object) -> list:
    """Join a new group, and get the responses."""
    answers = rig.join(**options) if "instance" in options else rig.enter(**options)
    rig.pass_time(0)
    return answers
