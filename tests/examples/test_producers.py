"""docs/producers.md: each cell of its table of guarantees, seen in a log, and its blocks run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import kclient
from kclient.testing import Cluster, ErrorCode, run_virtually
from tests.examples.test_pages import PAGES, block, execute

PLAIN_0: dict[str, Any] = {"acks": 0, "idempotence": False}
PLAIN_1: dict[str, Any] = {"acks": 1, "idempotence": False}
PLAIN_ALL: dict[str, Any] = {"acks": "all", "idempotence": False}
DEFAULT: dict[str, Any] = {}
ONE_AT_A_TIME = {"max_in_flight": 1}
BATCH_EACH = {"batch_size": 1, "linger": 0.0}
"""Each record is a batch, and a request, of its own."""


def logged(
    settings: dict[str, Any],
    play: Callable[[Cluster, kclient.Producer[Any, Any]], Awaitable[None]],
) -> list[bytes | None]:
    """The log of a topic of two replicas, which broker 1 leads, after ``play``."""

    async def scene() -> list[bytes | None]:
        async with Cluster(brokers=3) as cluster:
            cluster.create_topic("t", assignments=[[1, 2]])
            async with kclient.Producer(cluster.bootstrap, **BATCH_EACH, **settings) as producer:
                await producer.partitions_for("t")
                await play(cluster, producer)
            await asyncio.sleep(1.0)
            return [record.value for record in cluster.records("t")]

    return run_virtually(scene(), limit=600.0)


# Lost


def test_acks_0_loses_what_is_under_way_and_reports_nothing() -> None:
    async def play(cluster: Cluster, producer: kclient.Producer[Any, Any]) -> None:
        cluster.faults.lose_requests("Produce")
        assert (await producer.send("t", b"lost")).offset == -1

    assert logged(PLAIN_0, play) == []


async def fail_over(cluster: Cluster, producer: kclient.Producer[Any, Any]) -> None:
    """The leader fails right after it has written a record that no follower has yet."""
    cluster.disconnect(1, 2)
    delivery = producer.send("t", b"a")
    await cluster.requests.wait_for("Produce")
    await asyncio.sleep(1.0)
    assert [record.value for record in cluster.records("t")] == [b"a"]
    await cluster.crash(1)
    cluster.reconnect()
    await delivery


def test_acks_1_loses_what_no_follower_has() -> None:
    assert logged(PLAIN_1, fail_over) == []


@pytest.mark.parametrize("settings", [PLAIN_ALL, DEFAULT])
def test_acks_all_loses_nothing_when_the_leader_fails(settings: dict[str, Any]) -> None:
    assert logged(settings, fail_over) == [b"a"]


def test_too_few_replicas_in_sync_refuse_what_they_could_lose() -> None:
    async def scene() -> None:
        async with Cluster(brokers=3) as cluster:
            cluster.create_topic("t", assignments=[[1, 2, 3]], configs={"min.insync.replicas": "2"})
            await cluster.crash(2)
            await cluster.crash(3)
            async with kclient.Producer(cluster.bootstrap, delivery_timeout=5.0) as producer:
                with pytest.raises(kclient.DeliveryTimedOut) as failed:
                    await producer.send("t", b"a")
            assert failed.value.maybe_written is False
            assert "NOT_ENOUGH_REPLICAS" in str(failed.value)

    run_virtually(scene())


# Doubled


async def lose_a_response(cluster: Cluster, producer: kclient.Producer[Any, Any]) -> None:
    with cluster.faults.lose_answers("Produce"):
        await producer.send("t", b"a")


@pytest.mark.parametrize("settings", [PLAIN_1, PLAIN_ALL])
def test_a_lost_response_doubles_without_idempotence(settings: dict[str, Any]) -> None:
    assert logged(settings, lose_a_response) == [b"a", b"a"]


def test_a_lost_response_does_not_double_by_default() -> None:
    assert logged(DEFAULT, lose_a_response) == [b"a"]


# Reordered


async def refuse_the_first(cluster: Cluster, producer: kclient.Producer[Any, Any]) -> None:
    await producer.send("t", b"0")  # the first of an idempotent producer is sent alone
    cluster.faults.error("Produce", ErrorCode.NOT_ENOUGH_REPLICAS)
    await asyncio.gather(*(producer.send("t", value) for value in (b"1", b"2", b"3")))


@pytest.mark.parametrize("settings", [PLAIN_1, PLAIN_ALL])
def test_what_is_sent_again_comes_behind_later_ones(settings: dict[str, Any]) -> None:
    assert logged(settings, refuse_the_first) == [b"0", b"2", b"3", b"1"]


@pytest.mark.parametrize("settings", [PLAIN_1 | ONE_AT_A_TIME, PLAIN_ALL | ONE_AT_A_TIME, DEFAULT])
def test_one_in_flight_and_idempotence_keep_the_order(settings: dict[str, Any]) -> None:
    assert logged(settings, refuse_the_first) == [b"0", b"1", b"2", b"3"]


# Refused, and the rest of the page


@pytest.mark.parametrize(
    "settings",
    [
        {"acks": 1},
        {"acks": 0, "transactional_id": "t"},
        {"idempotence": False, "transactional_id": "t"},
        {"max_in_flight": 6},
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(kclient.InvalidConfig):
        kclient.Producer("localhost:9092", **settings)


def test_the_figures_of_the_page_are_the_defaults() -> None:
    page = " ".join(PAGES["docs/producers.md"].split())
    config = kclient.ProducerConfig()
    assert f"`delivery_timeout` ({config.delivery_timeout:g} s" in page
    assert f"`request_timeout` ({config.request_timeout:g} s" in page
    assert f"`max_block` ({config.max_block:g} s" in page
    assert f"`buffer_memory` ({config.buffer_memory >> 20} MiB" in page
    assert f"`batch_size`, {config.batch_size >> 10} KiB" in page
    assert f"`linger` ({config.linger * 1000:g} ms" in page


def test_the_blocks_run() -> None:
    async def scene() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic("orders", partitions=2)
            printed: list[str] = []

            def note(*words: object) -> None:
                printed.append(" ".join(map(str, words)))

            await execute(block("producers.md", "sent.offset"), cluster, print=note)
            assert printed == ["orders-0 0"] or printed == ["orders-1 0"]
            async with kclient.Producer(cluster.bootstrap, delivery_timeout=2.0) as producer:
                failing = block("producers.md", "error.maybe_written")
                with cluster.faults.error("Produce", ErrorCode.NOT_ENOUGH_REPLICAS, times=None):
                    await execute(failing, cluster, print=note, producer=producer)
                with cluster.faults.drop("Produce", times=None):
                    await execute(failing, cluster, print=note, producer=producer)
                assert [text.partition(":")[0] for text in printed[1:]] == [
                    "not there",
                    "may be there",
                ]
            async with kclient.Producer(cluster.bootstrap) as producer:
                await execute(block("producers.md", "range(1000)"), cluster, producer=producer)
            counts = [len(cluster.records("orders", index)) for index in range(2)]
            assert sum(counts) >= 1001

    run_virtually(scene())
