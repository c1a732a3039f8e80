"""TopicSubscription: the topics that a consumer in a group subscribes to, from the current view.

Kept by ``rebalance``. A pattern matches other topics with each view, and a name may be of no topic;
a single broker, which may lag behind, proves neither. Has no tasks.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kclient.broker_errors import UnknownTopicOrPartition
from kclient.cluster.retry import UNKNOWN_TOPIC_GRACE
from kclient.consumer.arguments import NOTHING, TopicFilter
from kclient.errors import some_of
from kclient.group.commit_errors import is_unknown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kclient.cluster.core import ClientCore
    from kclient.cluster.view import Cluster
    from kclient.errors import KafkaError

logger = logging.getLogger("kclient.consumer")

LOOK = 2.0
"""Seconds between two checks whether all names are of topics."""


class TopicSubscription:
    """The topics that are subscribed to.

    Args:
        core: The client's.

    Attributes:
        topic_filter: Names or a pattern.
        joined: The topics that the latest JoinGroup named.
    """

    def __init__(self, core: ClientCore) -> None:
        self._core = core
        self._log = core.hooks.log(logger)
        self.topic_filter: TopicFilter = NOTHING
        self.joined: tuple[str, ...] = ()
        self._look_at = 0.0
        self._gone: tuple[str, ...] = ()
        self._lacking: dict[str, float] = {}
        self._reported: dict[str, float] = {}
        self._pins: dict[str, tuple[str, ...]] = {}

    def subscribe(self, topic_filter: TopicFilter) -> None:
        """Subscribe to these topics, in place of the previous ones."""
        metadata = self._core.metadata
        if topic_filter.pattern is not None and self.topic_filter.pattern is None:
            metadata.watch_all()
        elif topic_filter.pattern is None and self.topic_filter.pattern is not None:
            metadata.unwatch_all()
        self.topic_filter = topic_filter
        self.pin("subscribed", topic_filter.topics)
        metadata.request_update()

    def join(self) -> tuple[str, ...]:
        """Return the topics to name in a JoinGroup now."""
        self.joined = self.topics_in(self._core.metadata.view)
        self.pin("matched", self.joined if self.topic_filter.pattern is not None else ())
        return self.joined

    def dismisses(self, error: KafkaError) -> bool:
        """A deleted topic leaves a pattern subscription by a rebalance, and is no error."""
        return self.topic_filter.pattern is not None and is_unknown(error)

    def topics_in(self, view: Cluster) -> tuple[str, ...]:
        """The subscribed topics in ``view``; a listing that lacks a topic proves nothing yet."""
        topics = self.topic_filter.topics_in(view)
        missing, means = set(self.joined).difference(topics), self.topic_filter.means
        stay = [topic for topic in missing if means(topic, view) and not self.is_gone(topic)]
        return tuple(sorted((*topics, *stay))) if stay else topics

    def is_gone(self, topic: str) -> bool:
        """Whether brokers keep reporting the topic as unknown: a single one may lag."""
        since = self._lacking.get(topic, 0.0)  # earlier reports don't count
        return self._core.metadata.confirmed_unknown(topic, since, UNKNOWN_TOPIC_GRACE)

    def pin(self, why: str, topics: Iterable[str]) -> None:
        """Keep ``topics`` in the view, in place of the previous ones that were kept for ``why``."""
        metadata, before = self._core.metadata, self._pins.get(why, ())
        after = tuple(topics)
        for topic in after:
            metadata.add_topic(topic)
        for topic in before:
            metadata.remove_topic(topic)
        self._pins[why] = after

    @property
    def unknown(self) -> tuple[str, ...]:
        """Subscribed names of which the latest check confirmed that no topic has them."""
        return tuple(sorted(set(self._gone).intersection(self.lacking()))) if self._gone else ()

    def lacking(self) -> list[str]:
        """Subscribed names without a known topic, confirmed or not."""
        count_of = self._core.metadata.view.partition_count
        return [topic for topic in self.topic_filter.topics if count_of(topic) is None]

    def refresh(self) -> None:
        """Request metadata of missing topics, not too often, and check which are surely unknown."""
        now = self._core.clock.now()
        if now < self._look_at:
            return
        self._look_at = now + LOOK
        lacking = self.lacking()
        self._lacking = {topic: self._lacking.get(topic, now) for topic in lacking}
        for topic in lacking:
            self._core.metadata.request_update(topic)
        self._gone = tuple(filter(self.is_gone, lacking)) if lacking else ()

    def check(self) -> None:
        """Raise UnknownTopicOrPartition for names without a topic: once, and again after long."""
        self.refresh()
        unknown, now = self.unknown, self._core.clock.now()
        again = now - self._core.config.api_timeout
        before = self._reported
        self._reported = {
            topic: before[topic] for topic in unknown if before.get(topic, again) > again
        }
        unreported = [topic for topic in unknown if topic not in self._reported]
        if not unreported:
            return
        self._reported.update(dict.fromkeys(unreported, now))
        others = len(self.topic_filter.topics) > len(unknown)
        meanwhile = "; the other topics are read meanwhile" if others else ""
        error = UnknownTopicOrPartition(
            f"no broker knows topic {some_of(unreported)}, which this consumer subscribes to",
            hint=f"create it, or check its spelling{meanwhile}",
        )
        self._log.warning("%s", error)
        raise error
