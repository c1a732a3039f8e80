"""``OffsetListener``: how far queries are, committed to a group, where monitors of lag see it.

Spark calls it in the driver, after each micro-batch. It is the only place where the end of the last
batch is seen: Spark notifies a source of a batch when the next one begins.
"""

from __future__ import annotations

import ast
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from kclient.errors import KafkaError
from kclient.spark.loop import admin_of, client_properties, run
from kclient.spark.stream_offset import StreamOffset
from kclient.types import TopicPartition

logger = logging.getLogger("kclient.spark")

COMMIT_TIMEOUT = 5.0
"""Seconds: the thread of Spark that calls listeners waits meanwhile."""
Report = Callable[[str, Mapping[TopicPartition, int]], object]


class OffsetListener(StreamingQueryListener):
    """Commits the end offsets of each finished micro-batch to a group, and has their lag.

    A failure to commit is logged, and the next batch commits again: queries don't fail by it. The
    group must have no members.

    Args:
        bootstrap: "host:port" of brokers, with commas.
        group: Name of the group.
        query: Name of the query to follow; None for all with a source of kclient.
        on_lag: Is called after each batch with the query's name, or its id, and the lag by
            partition.
        properties_file: A file with client settings, as option ``kclient.properties.file``.
        properties: Client settings by Kafka's names.

    Attributes:
        lag: By query, then by partition: offsets between what is processed and the end of the log,
            as they were when the batch was planned.

    Example::

        spark.streams.addListener(OffsetListener("localhost:9092", "audit"))
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        *,
        query: str | None = None,
        on_lag: Report | None = None,
        properties_file: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        given = {"bootstrap.servers": bootstrap, **(properties or {})}
        self._properties = client_properties(given, properties_file)
        self._group = group
        self._query = query
        self._on_lag = on_lag
        self.lag: dict[str, dict[TopicPartition, int]] = {}

    def offsets_behind_latest(self, query: str) -> tuple[int, float, int]:
        """Minimum, mean and maximum of the lag of a query's partitions, as the connector has it."""
        lags = list(self.lag.get(query, {}).values()) or [0]
        return min(lags), sum(lags) / len(lags), max(lags)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Spark calls it."""

    def onQueryIdle(self, event: Any) -> None:
        """Spark calls it."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Spark calls it, after each micro-batch."""
        progress = event.progress
        name = progress.name or str(progress.id)
        if self._query not in (None, progress.name):
            return
        lag: dict[TopicPartition, int] = {}
        for source in progress.sources:
            ends = _offset_of(source.endOffset)
            if ends is None:
                continue
            latest = _offset_of(source.latestOffset) or ends
            lag |= {
                key: max(0, latest.positions.get(key, end) - end)
                for key, end in ends.positions.items()
            }
            self._commit(name, ends)
        if lag:
            self.lag[name] = lag
            if self._on_lag is not None:
                self._on_lag(name, lag)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Spark calls it."""

    def _commit(self, name: str, ends: StreamOffset) -> None:
        try:
            run(self._commit_all(ends))
        except KafkaError as error:
            logger.warning("query %s: offsets were not committed: %s", name, error)

    async def _commit_all(self, ends: StreamOffset) -> None:
        admin = await admin_of(self._properties)
        await admin.alter_consumer_group_offsets(
            self._group, ends.positions, timeout=COMMIT_TIMEOUT
        )


def _offset_of(text: str | None) -> StreamOffset | None:
    """The offset of a source of kclient; None for any other one."""
    for read in (json.loads, ast.literal_eval):  # PySpark 4.1 has some as Python writes them
        try:
            return StreamOffset.from_json(read(text or ""))
        except (ValueError, AttributeError, TypeError, SyntaxError):
            pass
    return None
