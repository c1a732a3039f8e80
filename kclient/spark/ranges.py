"""Ranges of offsets: what a task reads, and how partitions are divided into tasks. Sans-IO."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from kclient.types import TopicPartition


@dataclass
class OffsetRange(InputPartition):
    """The records of one partition that one task reads.

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


NOTHING = OffsetRange("", 0, 0, 0)
"""Stands for no range, as Spark needs one."""


def ranges_between(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> list[OffsetRange]:
    """The ranges that aren't empty, in order."""
    return [
        OffsetRange(*partition, starts[partition], ends[partition])
        for partition in sorted(ends)
        if starts[partition] < ends[partition]
    ]


def divided(
    ranges: Iterable[OffsetRange], at_least: int | None, max_records: int | None
) -> list[OffsetRange]:
    """Divide ranges into tasks as Spark's connector does.

    Args:
        ranges: Not empty ones.
        at_least: Number of tasks, which long ranges are divided for; about that many come out.
        max_records: Most offsets of one task.
    """
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
