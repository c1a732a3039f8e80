"""One Spark session and one broker for all tests here: embedded, or as ``--broker`` has it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kclient import Admin, NewTopic, Producer
from kclient.testing import Cluster, ThreadedCluster
from tests.spark.session import spark_session
from tests.support.broker_fixtures import Broker
from tests.support.broker_fixtures import real_broker as real_broker

Record = tuple[int, bytes | None]
"""Partition and value."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark warns of its own use of pandas and sockets, which is not ours to mend."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("default"))
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    session = spark_session()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def bootstrap(real_broker: Broker | None) -> Iterator[str]:
    if real_broker is not None:
        yield real_broker.bootstrap
        return
    with ThreadedCluster(Cluster(brokers=3)) as cluster:
        yield cluster.bootstrap


class Topics:
    """Makes topics and writes records, from plain code.

    Args:
        bootstrap: Of the broker.
    """

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def create(self, partitions: int = 1, name: str | None = None, **configs: str) -> str:
        """Make a topic."""
        name = name or f"spark-{secrets.token_hex(4)}"

        async def make() -> None:
            async with Admin(self.bootstrap) as admin:
                settings = {key.replace("_", "."): value for key, value in configs.items()}
                await admin.create_topics([NewTopic(name, partitions=partitions, configs=settings)])

        asyncio.run(make())
        return name

    def admin(self, call: Callable[[Admin], Any]) -> Any:
        """Await one call of Admin."""

        async def make() -> Any:
            async with Admin(self.bootstrap) as admin:
                return await call(admin)

        return asyncio.run(make())

    def write(self, topic: str, records: Iterable[Record], **settings: Any) -> None:
        """Write records, and wait for them."""

        async def send() -> None:
            async with Producer(self.bootstrap, **settings) as producer:
                for partition, value in records:
                    await producer.enqueue(topic, value, partition=partition)
                await producer.flush()

        asyncio.run(send())

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        """Delete all records before an offset."""
        import confluent_kafka
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        asked = [confluent_kafka.TopicPartition(topic, partition, before)]
        for future in admin.delete_records(asked).values():
            future.result(30.0)


@pytest.fixture
def topics(bootstrap: str) -> Topics:
    return Topics(bootstrap)


@pytest.fixture
def read(spark: Any, bootstrap: str) -> Callable[..., Any]:
    """A frame: ``read(subscribe="flights", ...)``; options of more than letters by ``more``."""

    def load(more: dict[str, str] | None = None, schema: str | None = None, **options: str) -> Any:
        reader = spark.read.format("kclient").option("kafka.bootstrap.servers", bootstrap)
        if schema is not None:
            reader = reader.schema(schema)
        return reader.options(**options, **(more or {})).load()

    return load


class Streams:
    """Runs streams to their end, each with a folder of its own."""

    def __init__(self, spark: Any, bootstrap: str, folder: Path) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._folder = folder
        self.batches: list[list[Any]] = []

    def start(self, name: str = "query", once: bool = True, **options: str) -> Any:
        """Start a query of a checkpoint, whose batches go to ``batches``."""
        reader = self._spark.readStream.format("kclient")
        options = {"kafka.bootstrap.servers": self._bootstrap, **options}
        frame = reader.options(**options).load()

        def keep(batch: Any, number: int) -> None:
            rows = batch.select("partition", "offset", "value").collect()
            self.batches.append(sorted((r.partition, r.offset, bytes(r.value)) for r in rows))

        writer = frame.writeStream.foreachBatch(keep).queryName(name)
        writer = writer.option("checkpointLocation", str(self._folder / name))
        return (writer.trigger(availableNow=True) if once else writer).start()

    def run(self, name: str = "query", **options: str) -> list[Any]:
        """Run it until all that was there is read, and return the new rows."""
        self.batches.clear()
        query = self.start(name, **options)
        assert query.awaitTermination(120)
        return [row for batch in self.batches for row in batch]


@pytest.fixture
def streams(spark: Any, bootstrap: str, tmp_path: Path) -> Streams:
    return Streams(spark, bootstrap, tmp_path)
