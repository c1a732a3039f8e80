"""Tracker: how far the handlers have come with each partition, sans-IO.

Handlers finish in any order; what may be committed is the offset up to which *all* have. ``Track``
keeps the records of one partition in the order of their offsets, from the first unfinished one on,
so that a step costs the same however many there are. How many those may be is in ``bounds``, which
one runs next in ``schedule``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kclient.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kclient.consumer.bad_records import DeadLetters
    from kclient.consumer.running.retries import RetryTopic
    from kclient.record import Record


class Job:
    """One record that was taken and isn't finished yet.

    Attributes:
        record: As it is stored.
        track: Of its partition.
        attempts: How often a handler has failed on it.
        due: Not to be started before this time.
        following: The next one of the same line, see ``schedule``.
        finished: Nothing more is to be done for it.
        failure: What it failed with for good, where it waits to be sent on.
        destination: Where it is sent on.
        bad: Who sends it there, where it can't be deserialized and the consumer has its own way.
        sends: How often sending it on has failed.
    """

    __slots__ = (
        "attempts",
        "bad",
        "destination",
        "due",
        "failure",
        "finished",
        "following",
        "record",
        "sends",
        "track",
    )

    def __init__(self, record: Record, track: Track) -> None:
        self.record = record
        self.track = track
        self.attempts = 0
        self.due = 0.0
        self.following: Job | None = None
        self.finished = False
        self.failure: BaseException | None = None
        self.destination: RetryTopic | None = None
        self.bad: DeadLetters | None = None
        self.sends = 0


class Track:
    """The records of one partition, from the first that isn't finished on.

    Attributes:
        partition: Which one.
        jobs: Its records in the order of offsets; all behind the first may be finished.
        tails: The last job of each line, see ``schedule``.
        done: Up to where all records are finished; None before the first is.
        newest: The offset taken last.
        running: Handlers at work on it.
        halted: No handler is started any more.
        void: It counts no more: the partition was taken away or begins anew.
        paused: No more of it is taken for now.
        rest_until: Nor before this time, as what was taken last isn't due before.
        delay: Seconds that the records of this topic wait; 0 but for a retry topic.
    """

    __slots__ = (
        "delay",
        "done",
        "halted",
        "jobs",
        "newest",
        "partition",
        "paused",
        "rest_until",
        "running",
        "tails",
        "void",
    )

    def __init__(
        self, partition: TopicPartition, delay: float = 0.0, done: OffsetAndMetadata | None = None
    ) -> None:
        self.partition = partition
        self.delay = delay
        self.jobs: deque[Job] = deque()
        self.tails: dict[bytes | None, Job] = {}
        self.done = done
        self.newest = -1
        self.running = 0
        self.halted = False
        self.void = False
        self.paused = False
        self.rest_until = 0.0

    def first_unfinished(self) -> OffsetAndMetadata | None:
        """Where to go on reading so that nothing is left out; None where nothing was taken."""
        if not self.jobs:
            return self.done
        record = self.jobs[0].record
        # Its own epoch, as that of the record before isn't known: same leader or a former one.
        return OffsetAndMetadata(record.offset, record.leader_epoch)


class Tracker:
    """The tracks of one run.

    Args:
        delays: Seconds that records of a retry topic wait, by its name.

    Attributes:
        in_flight: Records in all tracks.
    """

    __slots__ = ("_delays", "_tracks", "in_flight")

    def __init__(self, delays: dict[str, float] | None = None) -> None:
        self._tracks: dict[TopicPartition, Track] = {}
        self._delays = delays or {}
        self.in_flight = 0

    def __iter__(self) -> Iterator[Track]:
        return iter(tuple(self._tracks.values()))

    def get(self, partition: TopicPartition) -> Track | None:
        """The track of ``partition``, if any of it was taken."""
        return self._tracks.get(partition)

    def those_of(self, partitions: Iterable[TopicPartition]) -> list[Track]:
        """The tracks of ``partitions``, of those that have one."""
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
            track.done = None  # the user sought back: what was finished behind is so no longer
        return track

    def add(self, track: Track, record: Record) -> Job:
        """``record`` was taken; its offset is above all those before."""
        job = Job(record, track)
        track.jobs.append(job)
        track.newest = record.offset
        self.in_flight += 1
        return job

    def finish(self, job: Job) -> None:
        """Nothing more is to be done for ``job``."""
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
        """The partition was taken away."""
        self._void(track)
        if self._tracks.get(track.partition) is track:
            del self._tracks[track.partition]

    def restart(self, track: Track) -> Track:
        """What was taken and isn't finished is given back. Returns the track from now on."""
        self._void(track)
        fresh = Track(track.partition, track.delay, track.done)
        fresh.newest = -1 if track.done is None else track.done.offset - 1
        self._tracks[track.partition] = fresh
        return fresh

    def _void(self, track: Track) -> None:
        if not track.void:
            track.void = track.halted = True
            self.in_flight -= len(track.jobs)
