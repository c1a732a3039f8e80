"""The errors that only a consumer raises. Part of the tree in ``kclient.errors``.

Kept beside their one user; ``except KafkaError`` and ``except ClientError`` catch them, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.errors import ClientError

if TYPE_CHECKING:
    from kclient.types import TopicPartition


class _AtOffset(ClientError):
    """An error about one offset of one partition.

    Attributes:
        offset: The offset.
    """

    def __init__(
        self,
        message: str = "",
        *,
        offset: int | None = None,
        topic_partition: TopicPartition | None = None,
        node_id: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, topic_partition=topic_partition, node_id=node_id, hint=hint)
        self.offset = offset


class DeserializationFailed(_AtOffset, ValueError):
    """A deserializer raised (the ``__cause__``). The position stays at the record."""


class LogTruncated(_AtOffset):
    """Records that were read are gone from the log, which begins to differ at ``offset``.

    An unclean election does that: a replica that lacked them became the leader (KIP-320).
    """
