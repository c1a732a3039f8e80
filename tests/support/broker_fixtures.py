"""The fixtures of behaviour and interop tests: a broker of either kind, fresh topics, clients.

    async def test_a_record_comes_back(broker, topic, producer, consumer):
        name = await topic(partitions=2, max_message_bytes=100_000)
        out = await producer(linger=0.0)
        back = await consumer(name)

`--broker embedded` (the default) starts `kclient.testing.Cluster` in the loop of each test;
`--broker 4.3.0` uses one real broker for the session; `--docker` (or KCLIENT_TEST_DOCKER=1) one in
a container of `--docker-image` (or KCLIENT_TEST_DOCKER_IMAGE). `KCLIENT_TEST_BOOTSTRAP` (with
`KCLIENT_TEST_VERSION`, else its release is guessed from what it speaks) wins over a release.
A test must not care which it got, except for what an old release cannot do: there it asserts the
typed error. Clients are closed when the test ends.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Literal

import pytest
import pytest_asyncio

import kclient
from tests.docker import container
from tests.support import kafka, raw_admin
from tests.support.class_path import parse_version

EMBEDDED_BROKERS = 3
_READY_TIMEOUT = 30.0
USED_IMAGE = pytest.StashKey[str]()
"""The image that ran in Docker, and which it replaced; known late, so shown in the summary."""


@dataclass(frozen=True, slots=True)
class Broker:
    """What the tests run against."""

    bootstrap: str
    version: tuple[int, int, int]
    """The release of Apache Kafka that it is or, embedded, that it behaves like."""
    kind: Literal["embedded", "kafka"]
    tls_bootstrap: str | None = None
    """Its TLS listener; `tests.support.tls.certificate()` is the authority to trust."""
    cluster: kclient.testing.Cluster | None = None
    """The embedded cluster itself, for what cannot be brought about through the protocol."""


TopicFactory = Callable[..., Awaitable[str]]
ClientFactory = Callable[..., Awaitable[Any]]


@pytest.fixture(scope="session")
def real_broker(request: pytest.FixtureRequest) -> Iterator[Broker | None]:
    """One real broker for the session, or None when the embedded cluster was asked for."""
    version = request.config.getoption("--broker")
    address = os.environ.get("KCLIENT_TEST_BOOTSTRAP")
    if version == "embedded":
        yield None
    elif version == "docker":
        with container.running(request.config.getoption("--docker-image")) as found:
            request.config.stash[USED_IMAGE] = str(found.image)
            yield Broker(found.bootstrap, found.version, "kafka", found.tls_bootstrap)
    elif address:
        raw_admin.wait_ready(address, _READY_TIMEOUT)
        named = os.environ.get("KCLIENT_TEST_VERSION")
        known = parse_version(named) if named else None
        release = known or raw_admin.guess_release(raw_admin.api_versions(address))
        yield Broker(address, release, "kafka")
    else:
        running = kafka.acquire(version)
        try:
            yield Broker(running.bootstrap, parse_version(version), "kafka", running.tls_bootstrap)
        finally:
            kafka.release(version)


@pytest_asyncio.fixture
async def broker(real_broker: Broker | None) -> AsyncIterator[Broker]:
    """The broker or cluster under test."""
    if real_broker is not None:
        yield real_broker
        return
    async with kclient.testing.Cluster(brokers=EMBEDDED_BROKERS) as cluster:
        yield Broker(cluster.bootstrap, (4, 3, 0), "embedded", cluster=cluster)


@pytest_asyncio.fixture
async def topic(request: pytest.FixtureRequest, broker: Broker) -> AsyncIterator[TopicFactory]:
    """Make topics: `await topic(partitions=1, **configs)` gives a fresh name.

    A config is named as in Kafka, with underscores for dots: `max_message_bytes=1000`.
    """
    stem = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)[:100].strip("-")
    made: list[str] = []

    async def create(partitions: int = 1, **configs: object) -> str:
        name = f"{stem}-{secrets.token_hex(4)}"
        await asyncio.to_thread(
            raw_admin.create_topic,
            broker.bootstrap,
            name,
            partitions=partitions,
            configs={key.replace("_", "."): str(value) for key, value in configs.items()},
        )
        made.append(name)
        return name

    yield create
    if "KCLIENT_TEST_BOOTSTRAP" in os.environ and broker.kind == "kafka":
        for name in made:  # a broker of our own is thrown away whole
            await asyncio.to_thread(raw_admin.delete_topic, broker.bootstrap, name)


@pytest_asyncio.fixture
async def clients() -> AsyncIterator[AsyncExitStack]:
    """The clients of a test, closed at its end in reverse order."""
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def producer(broker: Broker, clients: AsyncExitStack) -> ClientFactory:
    """Start producers: `await producer(**settings)`."""

    async def start(**settings: Any) -> kclient.Producer[Any, Any]:
        client = kclient.Producer(settings.pop("bootstrap", broker.bootstrap), **settings)
        return await clients.enter_async_context(client)

    return start


@pytest.fixture
def consumer(broker: Broker, clients: AsyncExitStack) -> ClientFactory:
    """Start consumers: `await consumer(*topics, **settings)`."""

    async def start(*topics: str, **settings: Any) -> kclient.Consumer[Any, Any]:
        client = kclient.Consumer(settings.pop("bootstrap", broker.bootstrap), *topics, **settings)
        return await clients.enter_async_context(client)

    return start


@pytest.fixture
def admin(broker: Broker, clients: AsyncExitStack) -> ClientFactory:
    """Start admin clients: `await admin(**settings)`."""

    async def start(**settings: Any) -> kclient.Admin:
        client = kclient.Admin(settings.pop("bootstrap", broker.bootstrap), **settings)
        return await clients.enter_async_context(client)

    return start
