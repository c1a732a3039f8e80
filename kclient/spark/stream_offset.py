"""The offset of a stream, as it stands in Spark's checkpoints, and that of Spark's connector.

A public format, so it has a version::

    {"version": 1, "topics": {"flights": {"id": "5f0c...", "partitions": {"0": 42, "1": 40}}}}

``id`` is the topic's, in hexadecimal, where brokers have ids: a topic that was deleted and created
again has another one. ``added`` in place of a number of ``partitions`` in an earlier offset says
where a partition that is new in this offset begins, so that a batch has the same records again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kclient.errors import InvalidArgument
from kclient.types import TopicPartition

VERSION = 1


@dataclass(frozen=True)
class StreamOffset:
    """How far a stream is.

    Attributes:
        positions: The next offset to read by partition.
        ids: Of the topics, where brokers have ids.
        added: Where partitions begin that earlier offsets don't have.
    """

    positions: Mapping[TopicPartition, int]
    ids: Mapping[str, str] = field(default_factory=dict)
    added: Mapping[TopicPartition, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Equal offsets have equal JSON: Spark compares texts."""
        topics: dict[str, Any] = {}
        for topic in sorted({partition.topic for partition in self.positions}):
            entry: dict[str, Any] = {"id": self.ids[topic]} if topic in self.ids else {}
            entry["partitions"] = _of_topic(self.positions, topic)
            if added := _of_topic(self.added, topic):
                entry["added"] = added
            topics[topic] = entry
        return {"version": VERSION, "topics": topics}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> StreamOffset:
        """Read what ``to_json`` made.

        Raises:
            InvalidArgument: It is of a newer version, or of another source.
        """
        version = given.get("version")
        if isinstance(version, int) and version > VERSION:
            raise InvalidArgument(
                f"the checkpoint has version {version} of the format, known here is {VERSION}",
                hint="it was written by a newer kclient: use that one",
            )
        topics = given.get("topics")
        if version != VERSION or not isinstance(topics, dict):
            raise InvalidArgument(
                f"the checkpoint's offset {json.dumps(given)[:200]} isn't of this source",
                hint="kclient.spark.starting_offsets() makes startingOffsets of a checkpoint of "
                "Spark's own connector; begin with a checkpoint of its own",
            )
        positions: dict[TopicPartition, int] = {}
        added: dict[TopicPartition, int] = {}
        ids: dict[str, str] = {}
        for topic, entry in topics.items():
            if "id" in entry:
                ids[topic] = str(entry["id"])
            for found, name in ((positions, "partitions"), (added, "added")):
                for index, offset in entry.get(name, {}).items():
                    found[TopicPartition(topic, int(index))] = int(offset)
        return cls(positions, ids, added)


def _of_topic(offsets: Mapping[TopicPartition, int], topic: str) -> dict[str, int]:
    chosen = sorted(partition for partition in offsets if partition.topic == topic)
    return {str(partition.partition): offsets[partition] for partition in chosen}


def starting_offsets(checkpoint: str | Path, source: int = 0) -> str:
    """Where a query of Spark's Kafka connector stands, as the option ``startingOffsets``.

    For moving a query over: stop it, and start it with this source, this option and a new
    checkpoint. Batches that were begun and not finished are read again. Checkpoints of this source
    are read, too.

    Args:
        checkpoint: Its ``checkpointLocation``, a folder that this process can read.
        source: Which of the query's sources, from 0.

    Returns:
        JSON of offsets by topic and partition.

    Raises:
        InvalidArgument: There is no finished batch, or the source isn't Kafka.

    Example::

        reader.option("startingOffsets", kclient.spark.starting_offsets("/data/checkpoint"))
    """
    folder = Path(checkpoint)
    batches = sorted(
        int(file.name) for file in (folder / "commits").glob("*") if file.name.isdecimal()
    )
    if not batches:
        raise InvalidArgument(f"{folder} has no finished batch: no file in its folder commits")
    try:
        lines = (folder / "offsets" / str(batches[-1])).read_text().splitlines()
    except OSError as error:
        raise InvalidArgument(
            f"the offsets of batch {batches[-1]} can't be read: {error}"
        ) from None
    offsets = lines[2:]  # behind the version and the metadata
    if not 0 <= source < len(offsets):
        raise InvalidArgument(
            f"source={source!r}: batch {batches[-1]} of {folder} has {len(offsets)} sources"
        )
    try:
        found = json.loads(offsets[source])
        if "version" in found:
            positions = StreamOffset.from_json(found).positions
            topics = sorted({partition.topic for partition in positions})
            return json.dumps({topic: _of_topic(positions, topic) for topic in topics})
        whole = {
            topic: {str(int(index)): int(offset) for index, offset in partitions.items()}
            for topic, partitions in found.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise InvalidArgument(
            f"source {source} of {folder} isn't Kafka: its offset is {offsets[source][:200]}"
        ) from None
    return json.dumps(whole, sort_keys=True)
