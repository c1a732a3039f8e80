"""Making, writing and reading with librdkafka: what its features share."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.foreign.scene import PATIENCE, Scene, equal, true


def common(scene: Scene) -> dict[str, Any]:
    """What all clients have: where the brokers are, and how to log in."""
    login = {} if scene.login is None else scene.login.librdkafka()
    return {"bootstrap.servers": scene.bootstrap, **login}


def producer(scene: Scene, **settings: Any) -> Producer:
    """A producer with librdkafka's own settings but for these."""
    return Producer({**common(scene), "linger.ms": 0, **settings})


def consumer(scene: Scene, **settings: Any) -> Consumer:
    """A consumer that commits nothing of itself; its group is made up unless it is given."""
    return Consumer(
        {
            **common(scene),
            "group.id": "foreign-unused",
            "enable.auto.commit": False,
            "group.protocol": "classic",
            "fetch.wait.max.ms": 100,
            **settings,
        }
    )


def produce(
    made: Producer, topic: str, values: Sequence[bytes], *, partition: int = 0
) -> list[KafkaError | Message]:
    """Produce values and wait for all; return the outcome of each."""
    reported: list[KafkaError | Message] = []
    for value in values:
        made.produce(
            topic,
            value,
            partition=partition,
            on_delivery=lambda error, message: reported.append(error or message),
        )
    equal(made.flush(PATIENCE), 0, "records left in the queue")
    return reported


def write(
    scene: Scene, topic: str, values: Sequence[bytes], *, partition: int = 0, **settings: Any
) -> list[int]:
    """Produce values, which must succeed; return the acknowledged offsets."""
    offsets = []
    for one in produce(producer(scene, **settings), topic, values, partition=partition):
        true(isinstance(one, Message), f"not delivered: {one}")
        offsets.append(one.offset())
    return offsets


def read(
    scene: Scene,
    topic: str,
    count: int,
    partitions: int = 1,
    start: int = OFFSET_BEGINNING,
    **settings: Any,
) -> list[Message]:
    """Read so many records by assignment."""
    reader = consumer(scene, **settings)
    try:
        reader.assign([TopicPartition(topic, p, start) for p in range(partitions)])
        return take(reader, count)
    finally:
        reader.close()


def take(reader: Consumer, count: int) -> list[Message]:
    """The next records of a consumer."""
    found: list[Message] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < count:
        true(time.monotonic() < deadline, f"only {len(found)} of {count} records came")
        for message in reader.consume(count - len(found), timeout=0.2):
            true(message.error() is None, f"{message.error()}")
            found.append(message)
    return found


def code_of(error: BaseException) -> str:
    """The name of the code of an error."""
    true(isinstance(error, KafkaException), f"a KafkaException, not {error!r}")
    return str(error.args[0].name())
