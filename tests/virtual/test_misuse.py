"""Mistakes about a client's lifetime raise errors that help."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

import kclient
from kclient.errors import BootstrapFailed, ClientClosed, InvalidConfig, WrongContext
from kclient.testing import Cluster, run_virtually

MAKERS = [kclient.Producer, kclient.Consumer, kclient.Admin]


@pytest.mark.parametrize("make", MAKERS)
async def test_start_twice_reports_that_it_runs_and_harms_nothing(make: Any) -> None:
    async with Cluster(brokers=1) as cluster, make(cluster.bootstrap) as client:
        with pytest.raises(ClientClosed, match="this client is running already"):
            await client.start()
        health = client.health()
        assert getattr(health, "client", health).state == "running"


async def test_a_producer_that_was_started_twice_still_sends() -> None:
    async with Cluster(brokers=1) as cluster, kclient.Producer(cluster.bootstrap) as producer:
        cluster.create_topic("t")
        with pytest.raises(ClientClosed, match="running already"):
            await producer.start()
        assert (await producer.send("t", b"v")).offset == 0


@pytest.mark.parametrize("make", MAKERS)
async def test_start_after_close_reports_that_it_was_closed(make: Any) -> None:
    client = make("broker-1:9092")
    await client.close()
    with pytest.raises(ClientClosed, match="this client was closed"):
        await client.start()


@pytest.mark.parametrize("make", MAKERS)
async def test_start_while_it_starts_reports_that(make: Any) -> None:
    async with Cluster(brokers=1) as cluster:
        client = make(cluster.bootstrap)
        first = asyncio.create_task(client.start())
        await asyncio.sleep(0)
        with pytest.raises(ClientClosed, match="this client is starting already"):
            await client.start()
        await first
        await client.close()


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("dialer", ["x", object()])
def test_a_dialer_that_can_not_dial_is_refused(make: Any, dialer: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"dialer holds .* it needs a method dial\(\)"):
        make("broker-1:9092", dialer=dialer)


async def test_bootstrap_failures_name_each_address_once() -> None:
    producer = kclient.Producer(["borker-1:9092", "broker-9:9092"], bootstrap_timeout=2.0)
    with pytest.raises(BootstrapFailed) as failed:
        await producer.start()
    text = str(failed.value)
    assert text.count("borker-1:9092") == 1
    assert text.count("broker-9:9092") == 1


@pytest.mark.parametrize("make", MAKERS)
async def test_health_from_another_thread_raises_with_where_it_may_be_called(make: Any) -> None:
    found: list[BaseException] = []
    async with Cluster(brokers=1) as cluster, make(cluster.bootstrap) as client:

        def ask() -> None:
            try:
                client.health()
            except BaseException as error:
                found.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    (error,) = found
    assert isinstance(error, WrongContext)
    assert "thread" in str(error)


@pytest.mark.parametrize("make", MAKERS)
def test_a_client_left_open_when_its_loop_ends_is_reported_once(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def leave_open() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic("t")
            client = make(cluster.bootstrap)
            await client.start()
            kept.append(client)
            if isinstance(client, kclient.Consumer):
                client.assign([kclient.TopicPartition("t", 0)])
                client.seek(kclient.TopicPartition("t", 0), 0)
                await client.poll(timeout=0.1)

    kept: list[Any] = []
    run_virtually(leave_open())
    errors = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert "was the client left open when its event loop ended" in errors[0]
    assert "async with" in errors[0]
    assert "bug" not in errors[0]
