"""Plain tests with a client in another library: ``pytest examples/test_other_client.py``.

Without an event loop of their own, tests get the cluster in a thread: the same methods, without
``await``. The client here is confluent-kafka; any other one, in any language, works the same way.
"""

import confluent_kafka
import pytest
from confluent_kafka import Producer

from kclient.testing import ErrorCode, ThreadedCluster


def send(bootstrap: str, *values: bytes) -> list[confluent_kafka.KafkaError | None]:
    """The code under test: sends all, and returns the outcome of each."""
    outcomes: list[confluent_kafka.KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for value in values:
        producer.produce("flights", value, on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(30)
    return outcomes


def test_records_arrive(kafka_cluster: ThreadedCluster, kafka_bootstrap: str) -> None:
    kafka_cluster.create_topic("flights", partitions=1)
    assert send(kafka_bootstrap, b"UA 1545", b"AA 1141") == [None, None]
    assert [one.value for one in kafka_cluster.records("flights")] == [b"UA 1545", b"AA 1141"]


def test_an_error_that_passes_is_retried(kafka_cluster: ThreadedCluster) -> None:
    kafka_cluster.create_topic("flights", partitions=1)
    fault = kafka_cluster.faults.error("Produce", ErrorCode.NOT_ENOUGH_REPLICAS, times=2)
    assert send(kafka_cluster.bootstrap, b"UA 1545") == [None]
    assert fault.hits == 2
    assert kafka_cluster.requests.count("Produce") == 3


@pytest.mark.kafka_cluster(brokers=1, broker_configs={"message.max.bytes": 1000})
def test_a_record_that_is_too_large_is_reported(kafka_cluster: ThreadedCluster) -> None:
    kafka_cluster.create_topic("flights")
    (error,) = send(kafka_cluster.bootstrap, b"x" * 2000)
    assert error is not None
    assert error.code() == confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE
    assert kafka_cluster.records("flights") == []
