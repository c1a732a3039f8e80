"""What a ``Cluster`` says of topics that don't say, and the configuration of its brokers from that.

Called by ``Cluster`` when it is made. Whether Kafka allows the values is ``BrokerConfig``'s to say.
"""

from __future__ import annotations

from dataclasses import dataclass

from kclient.errors import InvalidArgument
from kclient.testing.arguments import configs_of, flag, whole

_MOST_REPLICAS = 3


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """Counts of topics that don't say.

    Attributes:
        partitions: How many.
        replication_factor: Replicas of each; None for 3, or all brokers if there are fewer.

    Raises:
        InvalidArgument: A count that isn't one.
    """

    partitions: int = 1
    replication_factor: int | None = None

    def __post_init__(self) -> None:
        whole("partitions", self.partitions, 1)
        if self.replication_factor is not None:
            whole("replication_factor", self.replication_factor, 1)


def broker_configs_of(
    brokers: int, defaults: TopicDefaults | None, auto_create_topics: bool, configs: object
) -> dict[str, object]:
    """The configuration of all brokers, by Kafka's names."""
    if defaults is not None and not isinstance(defaults, TopicDefaults):
        raise InvalidArgument(f"topic_defaults={defaults!r} must be TopicDefaults")
    said = TopicDefaults() if defaults is None else defaults
    counts = {
        "num.partitions": said.partitions,
        "default.replication.factor": said.replication_factor or min(brokers, _MOST_REPLICAS),
    }
    return {
        **{name: count for name, count in counts.items() if count != 1},  # which is Kafka's default
        "auto.create.topics.enable": flag("auto_create_topics", auto_create_topics),
        **configs_of("broker_configs", configs),
    }
