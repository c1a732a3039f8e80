"""The topics of a request about offsets, by name and by id. Sans-IO.

``offset_commit`` and ``offset_fetch`` name topics in their older versions and number them in their
newest one, which is of use only where the ids of all of them are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kclient.errors import NoCommonVersion
from kclient.types import TopicPartition

if TYPE_CHECKING:
    from kclient.cluster.view import Cluster

LAST_BY_NAME: Final = 9
"""Last version of both requests that names topics (KIP-848)."""


class TopicIds:
    """The ids of some topics, as one view has them.

    Args:
        view: What is known of the cluster.
        topics: Names.
        known: Ids that count in place of the view's, where they are not empty.

    Attributes:
        complete: The id of each topic is known.
    """

    __slots__ = ("_ids", "_names", "complete")

    def __init__(
        self,
        view: Cluster,
        topics: Iterable[str],
        known: Mapping[str, bytes | None] | None = None,
    ) -> None:
        ids = known or {}
        found = {topic: ids.get(topic) or view.topic_id(topic) for topic in topics}
        self._ids = {topic: one for topic, one in found.items() if one is not None}
        self._names = {one: topic for topic, one in self._ids.items()}
        self.complete = len(self._ids) == len(found)

    def check(self, version: int) -> None:
        """Raise NoCommonVersion if ``version`` goes by ids and one isn't known."""
        if version > LAST_BY_NAME and not self.complete:
            raise NoCommonVersion(f"version {version} needs the ids of topics, and one is unknown")

    def id_of(self, topic: str) -> bytes:
        """The id of one of the topics, which is known."""
        return self._ids[topic]

    def name_of(self, name: str, topic_id: bytes) -> str:
        """How we name a topic of an answer, which has a name or an id; empty if we don't."""
        return name or self._names.get(bytes(topic_id), "")


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """The partitions of each topic, in order."""
    topics: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition)
    return topics
