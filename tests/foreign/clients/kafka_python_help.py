"""Making, writing and reading with kafka-python: what its features share."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

from tests.foreign.scene import PATIENCE, Scene, true
from tests.interop.peers.kafka_python_peer import kafka


def common(scene: Scene) -> dict[str, Any]:
    """What all clients have: where the brokers are, and how to log in."""
    login = {} if scene.login is None else scene.login.python()
    return {"bootstrap_servers": scene.bootstrap, **login}


@contextlib.contextmanager
def producing(scene: Scene, **settings: Any) -> Iterator[Any]:
    """A producer with kafka-python's own settings but for these."""
    made = kafka.KafkaProducer(**common(scene), **settings)
    try:
        yield made
    finally:
        made.close(timeout=PATIENCE)


@contextlib.contextmanager
def consuming(scene: Scene, *topics: str, **settings: Any) -> Iterator[Any]:
    """A consumer that commits nothing of itself."""
    settings = {
        "enable_auto_commit": False,
        "fetch_max_wait_ms": 100,
        # Where a member's LeaveGroup does not arrive, the next one waits for that long: by default
        # longer than PATIENCE.
        "session_timeout_ms": 10_000,
        **settings,
    }
    made = kafka.KafkaConsumer(*topics, **common(scene), **settings)
    try:
        yield made
    finally:
        made.close(autocommit=False)


@contextlib.contextmanager
def administering(scene: Scene) -> Iterator[Any]:
    """An admin client."""
    made = kafka.KafkaAdminClient(**common(scene))
    try:
        yield made
    finally:
        made.close()


def write(
    scene: Scene,
    topic: str,
    values: Sequence[bytes],
    *,
    partition: int = 0,
    first_time: int | None = None,
    **settings: Any,
) -> list[int]:
    """Write values, 1 s apart if they have a time; return the acknowledged offsets."""
    with producing(scene, **settings) as made:
        sent = [
            made.send(
                topic,
                value,
                partition=partition,
                timestamp_ms=None if first_time is None else first_time + 1000 * n,
            )
            for n, value in enumerate(values)
        ]
        return [one.get(timeout=PATIENCE).offset for one in sent]


def take(reader: Any, count: int) -> list[Any]:
    """The next records of a consumer.

    A poll waits for as long as there is: one that ends while its group is being joined, which takes
    a busy machine longer than a moment, leaves this client without partitions for good.
    """
    found: list[Any] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < count:
        left = deadline - time.monotonic()
        true(left > 0, f"only {len(found)} of {count} records came")
        polled = reader.poll(timeout_ms=int(left * 1000) + 1, max_records=count - len(found))
        for records in polled.values():
            found.extend(records)
    return found


def read(
    scene: Scene, topic: str, count: int, partitions: int = 1, start: int = 0, **settings: Any
) -> list[Any]:
    """Read so many records by assignment."""
    with consuming(scene, **settings) as reader:
        assigned = [kafka.TopicPartition(topic, p) for p in range(partitions)]
        reader.assign(assigned)
        for one in assigned:
            reader.seek(one, start)
        return take(reader, count)
