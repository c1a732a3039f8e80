"""Ranges of offsets: what a task reads, and how partitions are divided into tasks. Sans-IO."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from kclient.types import TopicPartition

ENOUGH_OFFSETS = 50_000
"""Of a task: shorter ranges share one, as a task of Python takes some 50 ms by itself."""
ENOUGH_TASKS = 16
"""With fewer, ranges share none, so that there is something to do for all cores."""


@dataclass(frozen=True)
class OffsetRange:
    """A part of one partition.

    Attributes:
        topic: Name of the topic.
        partition: Index of the partition.
        start: The first offset.
        end: The one behind the last.
    """

    topic: str
    partition: int
    start: int
    end: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """How many offsets, of which some may have no record."""
        return self.end - self.start


@dataclass
class ReadTask(InputPartition):
    """What one task of Spark reads.

    Attributes:
        ranges: Of different partitions, unless it is one.
    """

    ranges: tuple[OffsetRange, ...]


def ranges_between(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> list[OffsetRange]:
    """The ranges that aren't empty, in order."""
    return [
        OffsetRange(*partition, starts[partition], ends[partition])
        for partition in sorted(ends)
        if starts[partition] < ends[partition]
    ]


def tasks_of(
    ranges: list[OffsetRange], at_least: int | None, max_records: int | None
) -> list[ReadTask]:
    """Divide ranges into tasks: as Spark's connector does where it was told how, else by size.

    Args:
        ranges: Not empty ones, of different partitions.
        at_least: Number of tasks, which long ranges are divided for; about that many come out.
        max_records: Most offsets of one task.
    """
    if at_least is not None or max_records is not None:
        return [ReadTask((part,)) for part in divided(ranges, at_least, max_records)]
    number = max(ENOUGH_TASKS, math.ceil(sum(one.size for one in ranges) / ENOUGH_OFFSETS))
    if len(ranges) <= number:
        return [ReadTask((one,)) for one in ranges]
    shares: list[list[OffsetRange]] = [[] for _ in range(number)]
    least = [(0, index) for index in range(number)]
    for one in sorted(ranges, key=lambda one: (-one.size, one.topic, one.partition)):
        size, index = heapq.heappop(least)
        shares[index].append(one)
        heapq.heappush(least, (size + one.size, index))
    return [ReadTask(tuple(share)) for share in shares]


def divided(
    ranges: Iterable[OffsetRange], at_least: int | None, max_records: int | None
) -> list[OffsetRange]:
    """Divide long ranges as Spark's connector does; arguments as of ``tasks_of``."""
    parts = [
        part
        for one in ranges
        for part in _parts(one, math.ceil(one.size / max_records) if max_records else 1)
    ]
    if at_least is None or len(parts) > at_least:
        return parts
    total = sum(one.size for one in parts)
    whole = [_share(one, total, at_least) == 1 for one in parts]
    left = total - sum(one.size for one, is_whole in zip(parts, whole, strict=True) if is_whole)
    number = max(at_least - sum(whole), 1)
    return [
        part
        for one, is_whole in zip(parts, whole, strict=True)
        for part in _parts(one, 1 if is_whole else _share(one, left, number))
        if part.size > 0
    ]


def _share(one: OffsetRange, total: int, parts: int) -> int:
    return max(math.floor(one.size / total * parts + 0.5), 1)


def _parts(one: OffsetRange, count: int) -> list[OffsetRange]:
    parts, start = [], one.start
    for number in range(count):
        end = start + (one.end - start) // (count - number)
        parts.append(OffsetRange(one.topic, one.partition, start, end))
        start = end
    return parts


def rate_limited(
    limit: int, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Move ``ends`` so that about ``limit`` offsets lie between, by share as in the connector."""
    sizes = {key: end - starts[key] for key, end in ends.items() if end > starts[key]}
    total = sum(sizes.values())
    limited = dict(ends)
    for key, size in sizes.items():
        share = limit * size / total
        step = math.ceil(share) if share < 1 else math.floor(share)
        limited[key] = min(ends[key], starts[key] + step)
    return limited
