"""The configuration of a cluster's brokers is a value; single brokers may differ."""

from __future__ import annotations

from kclient.testing.broker_configs import BrokerConfig
from kclient.testing.topic_configs import TopicConfig

BROKER = 4


def of_topic(config: BrokerConfig) -> TopicConfig:
    return TopicConfig({}, config.topic_defaults)


def test_what_is_changed_is_another_value() -> None:
    before = BrokerConfig({"message.max.bytes": 1000})
    after = before.with_dynamic({"message.max.bytes": "2000"})
    own = after.with_stored(BROKER, "2", {"message.max.bytes": "3000"})
    assert [one.value("message.max.bytes") for one in (before, after, own)] == [1000, 2000, 2000]
    assert [len(one.stored) for one in (before, after, own)] == [0, 0, 1]
    assert own.with_stored(BROKER, "2", {}).stored == {}
    assert len(own.stored) == 1


def test_a_broker_has_one_configuration_of_a_topic_until_something_changes() -> None:
    config = BrokerConfig({}).with_stored(BROKER, "2", {"message.max.bytes": "3000"})
    topic = of_topic(config)
    assert config.of_topic_on(1, topic) is topic
    on_two = config.of_topic_on(2, topic)
    assert on_two.max_message_bytes == 3000
    assert config.of_topic_on(2, topic) is on_two
    changed = config.with_dynamic({"log.segment.bytes": "2000000"})
    assert changed.of_topic_on(2, topic).max_message_bytes == 3000
    assert changed.of_topic_on(2, topic).segment_bytes == 2_000_000


def test_defaults_that_cannot_be_together_leave_a_topic_as_it_is() -> None:
    own = {"log.cleaner.max.compaction.lag.ms": "1000"}
    config = BrokerConfig({"log.cleaner.min.compaction.lag.ms": 1000})
    topic = TopicConfig({"min.compaction.lag.ms": "5000"}, config.topic_defaults)
    assert config.with_stored(BROKER, "2", own).of_topic_on(2, topic) is topic
