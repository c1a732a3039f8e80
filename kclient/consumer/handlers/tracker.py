"""Tracker: which records of each partition are finished, and which may run next. Sans-IO.

Handlers finish in any order; what may be committed is the offset up to which *all* have. ``Track``
keeps the records of one partition in the order of their offsets, from the first unfinished one on.
``Bounds`` limits their number, ``Schedule`` selects which one runs next. A step of any of them
costs the same however many records there are or wait.
"""

from __future__ import annotations

import enum
import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kclient.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kclient.consumer.deserialization_errors import DeadLetters
    from kclient.consumer.handlers.retries import RetryTopic
    from kclient.record import Record

LEAST_SPACE = 1_024
"""Records that may be in flight at least, where ``max_in_flight`` isn't set."""
PER_HANDLER = PER_PARTITION = 16
"""At least so many for each handler and for each partition, likewise."""


@dataclass(slots=True, eq=False, repr=False)
class Job:
    """One record that was taken and isn't finished yet.

    Attributes:
        record: As it is stored.
        track: The track of its partition.
        attempts: How often a handler has failed on it.
        due: Not to be started before this time.
        following: The next job of the same sequence, see ``Schedule``.
        finished: Nothing more is to be done for it.
        failure: The exception that it failed with for good, while it waits to be sent on.
        destination: The topic that it is sent on to.
        bad: Sends it there, where it can't be deserialized and the consumer has ``DeadLetters``.
        sends: How often sending it on has failed.
    """

    record: Record
    track: Track
    attempts: int = 0
    due: float = 0.0
    following: Job | None = None
    finished: bool = False
    failure: BaseException | None = None
    destination: RetryTopic | None = None
    bad: DeadLetters | None = None
    sends: int = 0


@dataclass(slots=True, eq=False, repr=False)
class Track:
    """The records of one partition, from the first unfinished one on.

    Attributes:
        partition: The partition.
        jobs: Its records in the order of offsets; all behind the first may be finished.
        tails: The last job of each sequence, see ``Schedule``.
        done: Up to where all records are finished; None before the first is.
        newest: The offset taken last.
        running: Handlers running on it.
        halted: No handler is started any more.
        void: It counts no more: the partition was revoked or starts over.
        paused: No more of it is taken for now.
        rest_until: Nor before this time, as the last records taken have to wait until then.
        delay: Seconds that the records of this topic wait; 0 but for a retry topic.
    """

    partition: TopicPartition
    delay: float = 0.0
    done: OffsetAndMetadata | None = None
    jobs: deque[Job] = field(default_factory=deque)
    tails: dict[bytes | None, Job] = field(default_factory=dict)
    newest: int = -1
    running: int = 0
    halted: bool = False
    void: bool = False
    paused: bool = False
    rest_until: float = 0.0

    def first_unfinished(self) -> OffsetAndMetadata | None:
        """Where to continue reading so that nothing is left out; None where nothing was taken."""
        if not self.jobs:
            return self.done
        record = self.jobs[0].record
        # Its own epoch, as that of the previous record isn't known: same leader or a former one.
        return OffsetAndMetadata(record.offset, record.leader_epoch)


class Tracker:
    """The tracks of one run.

    Args:
        delays: Seconds that records of a retry topic wait, by its name.

    Attributes:
        in_flight: Records in all tracks.
    """

    def __init__(self, delays: dict[str, float] | None = None) -> None:
        self._tracks: dict[TopicPartition, Track] = {}
        self._delays = delays or {}
        self.in_flight = 0

    def __iter__(self) -> Iterator[Track]:
        return iter(tuple(self._tracks.values()))

    def get(self, partition: TopicPartition) -> Track | None:
        """The track of ``partition``, if any record of it was taken."""
        return self._tracks.get(partition)

    def those_of(self, partitions: Iterable[TopicPartition]) -> list[Track]:
        """The tracks of those of ``partitions`` that have one."""
        return [self._tracks[one] for one in partitions if one in self._tracks]

    def track_of(self, record: Record) -> Track:
        """The track that ``record`` belongs to."""
        partition = record.topic_partition
        track = self._tracks.get(partition)
        if track is None:
            track = Track(partition, self._delays.get(partition.topic, 0.0))
            self._tracks[partition] = track
        elif record.offset <= track.newest:
            paused, track = track.paused, self.restart(track)
            track.paused = paused
            track.done = None  # after a seek back, what was finished behind it is so no longer
        return track

    def add(self, track: Track, record: Record) -> Job:
        """Add ``record``, whose offset is above all previous ones."""
        job = Job(record, track)
        track.jobs.append(job)
        track.newest = record.offset
        self.in_flight += 1
        return job

    def finish(self, job: Job) -> None:
        """Mark ``job`` as finished; advances ``done`` where it was the first unfinished one."""
        job.finished = True
        track = job.track
        jobs = track.jobs
        if track.void or jobs[0] is not job:
            return
        last = job
        popped = 0
        while jobs and jobs[0].finished:
            last = jobs.popleft()
            popped += 1
        self.in_flight -= popped
        track.done = OffsetAndMetadata(last.record.offset + 1, last.record.leader_epoch)

    def drop(self, track: Track) -> None:
        """Remove the track of a partition that was revoked."""
        self._void(track)
        if self._tracks.get(track.partition) is track:
            del self._tracks[track.partition]

    def restart(self, track: Track) -> Track:
        """Give unfinished records back. Returns the track to use from now on."""
        self._void(track)
        fresh = Track(track.partition, track.delay, track.done)
        fresh.newest = -1 if track.done is None else track.done.offset - 1
        self._tracks[track.partition] = fresh
        return fresh

    def _void(self, track: Track) -> None:
        if not track.void:
            track.void = track.halted = True
            self.in_flight -= len(track.jobs)


class Ordering(enum.Enum):
    """Within which group of records the order is kept."""

    PARTITION = "partition"
    KEY = "key"
    NONE = "none"


class Schedule:
    """The jobs of one run that no handler works on.

    Records that must not overtake each other form a sequence: those of a partition, or those of a
    key within its partition. The first of each sequence is ready, the next one becomes so when that
    one is finished. A sequence is nothing but its last job and a ``following`` from each to the
    next, so that millions of keys cost nothing while no job waits. Jobs that wait for a time (a
    retry, the delay of a retry topic) keep their place in the sequence and are in ``_delayed`` by
    that time.

    Attributes:
        ready: Jobs that may start, in the order in which they became ready; some may be void.
        stopped: None is started any more.
    """

    def __init__(self, ordering: Ordering) -> None:
        self._in_lines = ordering is not Ordering.NONE
        self._by_key = ordering is Ordering.KEY
        self.ready: deque[Job] = deque()
        self._delayed: list[tuple[float, int, Job]] = []
        self._number = 0
        self.stopped = False

    def add(self, job: Job) -> None:
        """Add a job whose record was just taken."""
        if not self._in_lines:
            self.ready.append(job)
            return
        tails = job.track.tails
        key = job.record.key if self._by_key else None
        before = tails.get(key)
        tails[key] = job
        if before is None:
            self.ready.append(job)
        else:
            before.following = job

    def next(self) -> Job | None:
        """Take the job to start now, which isn't ready any more; None where there is none."""
        if self.stopped:
            return None
        ready = self.ready
        while ready:
            job = ready.popleft()
            if not job.track.halted:
                return job
        return None

    def put_back(self, job: Job) -> None:
        """Put back ``job``, which ``next`` returned and which isn't started."""
        self.ready.appendleft(job)

    def leave(self, job: Job) -> None:
        """Remove the finished ``job``; the next one in its sequence becomes ready."""
        if not self._in_lines:
            return
        following = job.following
        if following is not None:
            job.following = None
            self.ready.append(following)
            return
        tails = job.track.tails
        key = job.record.key if self._by_key else None
        if tails.get(key) is job:
            del tails[key]

    def delay(self, job: Job, due: float) -> None:
        """Start ``job`` at ``due``; those behind it in its sequence wait, all others don't."""
        job.due = due
        self._number += 1
        heapq.heappush(self._delayed, (due, self._number, job))

    @property
    def next_due(self) -> float | None:
        """When the next delayed job may start; None where there is none."""
        return self._delayed[0][0] if self._delayed else None

    @property
    def delayed(self) -> int:
        """How many jobs wait for a time."""
        return len(self._delayed)

    def wake(self, now: float) -> int:
        """Make the delayed jobs ready whose time has come. Returns how many."""
        delayed, count = self._delayed, 0
        while delayed and delayed[0][0] <= now:
            job = heapq.heappop(delayed)[2]
            if not job.track.halted:
                self.ready.append(job)
                count += 1
        return count

    def forget_void(self) -> None:
        """Remove waiting jobs of partitions that were revoked."""
        self._delayed = [entry for entry in self._delayed if not entry[2].track.halted]
        heapq.heapify(self._delayed)
        if any(job.track.halted for job in self.ready):
            self.ready = deque(job for job in self.ready if not job.track.halted)


class Bounds:
    """The limits of one run: how many records it takes before partitions are paused.

    Unfinished records take memory, so only so many may be in flight. A partition that makes no
    progress must not keep the others from going on: while less than half of the limit is used, one
    partition may have much of it; from then on only its part of the other half. ``run`` calls it
    for each batch, never per record.

    Args:
        total: Records of all partitions together; None goes by handlers and partitions.
        concurrency: Handlers running at the same time.

    Attributes:
        total: Records that may be in flight.
    """

    def __init__(self, total: int | None, concurrency: int) -> None:
        self._given = total
        self._concurrency = concurrency
        self.resize(1)

    def resize(self, partitions: int) -> None:
        """Set the number of assigned partitions."""
        self._partitions = max(1, partitions)
        self.total = self._given or max(
            LEAST_SPACE, PER_HANDLER * self._concurrency, PER_PARTITION * self._partitions
        )

    def limit(self, in_flight: int) -> int:
        """How many records may be taken at once now; 0 at the limit."""
        return max(0, min(self.total - in_flight, max(1, self.total // 8)))

    def share(self, in_flight: int) -> int:
        """How many records one partition may have in flight before it is paused."""
        part = max(1, self.total // (2 * self._partitions))
        if 2 * in_flight >= self.total:
            return part
        return max(part, min(2 * self._concurrency, self.total // 2))
