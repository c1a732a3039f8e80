"""Topics that are deleted and created again, as a producer sees it, on virtual time."""

from __future__ import annotations

import asyncio
import itertools

import pytest

import kclient
from kclient.errors import DeliveryTimedOut
from kclient.testing import Cluster, run_virtually
from tests.virtual.relay import now, values


def make_anew(cluster: Cluster, partitions: int) -> None:
    cluster.delete_topic("t")
    cluster.create_topic("t", partitions=partitions)


async def one_after_another() -> kclient.RecordMetadata | kclient.KafkaError:
    """What becomes of a record that is sent before the producer knows."""
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=3)
        async with kclient.Producer(cluster.bootstrap) as producer:
            await producer.send("t", b"x")
            make_anew(cluster, 1)
            began = now()
            delivery = producer.send("t", b"y")
            await producer.send("t", b"z", partition=0)  # the others go on
            assert now() - began < 10.0
            try:
                outcome: kclient.RecordMetadata | kclient.KafkaError = await delivery
            except kclient.KafkaError as error:
                assert 119.0 < now() - began < 122.0
                outcome = error
            await producer.send("t", b"w")
        reported = [] if isinstance(outcome, kclient.KafkaError) else [b"y"]
        assert sorted(values(cluster)) == [b"w", *reported, b"z"]
        return outcome


def test_a_record_for_a_partition_that_was_deleted_fails_at_its_deadline_and_names_it() -> None:
    outcomes = [run_virtually(one_after_another(), seed=seed) for seed in range(12)]
    failed = [outcome for outcome in outcomes if isinstance(outcome, kclient.KafkaError)]
    assert 0 < len(failed) < len(outcomes)
    for error in failed:
        assert isinstance(error, DeliveryTimedOut)
        assert error.topic_partition is not None and error.topic_partition.partition in (1, 2)
        assert "UNKNOWN_TOPIC" in str(error) and isinstance(error.__cause__, kclient.KafkaError)
        # The broker refused it, but of UNKNOWN_TOPIC_ID that isn't taken for sure.
        assert error.maybe_written is True


async def test_records_wait_for_a_topic_that_is_recreated_with_all_partitions() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=3)
        async with kclient.Producer(cluster.bootstrap) as producer:
            for partition in range(3):
                await producer.send("t", b"x", partition=partition)
            cluster.delete_topic("t")
            deliveries = [producer.send("t", b"y", partition=p) for p in range(3)]
            await asyncio.sleep(30.0)
            assert not any(delivery.done() for delivery in deliveries)
            cluster.create_topic("t", partitions=3)
            assert [(await delivery).partition for delivery in deliveries] == [0, 1, 2]


async def from_a_broker_that_lags_behind() -> int:
    """How often one view replaced another.

    A former topic looks new to a broker that never knew it.
    """
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", assignments=[[1]])
        cluster.brokers[2].freeze_metadata()
        make_anew(cluster, 3)
        settings = {"metadata_max_age": 0.1, "linger": 0.05, "retry_backoff": 0.05}
        first = cluster.bootstrap.split(",")[0]
        async with kclient.Producer(first, **settings) as producer:
            ids = []
            deliveries = []
            for turn in range(40):
                if turn == 5:
                    cluster.faults.close("Metadata", broker=1)
                if turn == 20:
                    cluster.brokers[2].thaw_metadata()
                count = producer._core.metadata.view.partition_count("t") or 1
                deliveries += [producer.send("t", b"y", partition=p) for p in range(count)]
                await asyncio.sleep(0.04)
                ids.append(producer._core.metadata.view.topic_id("t"))
            for delivery in deliveries:
                await delivery
        return sum(before != after for before, after in itertools.pairwise(ids))


def test_a_broker_that_lags_behind_for_a_moment_fails_nothing() -> None:
    assert sum(run_virtually(from_a_broker_that_lags_behind(), seed=seed) for seed in range(8)) > 0


@pytest.mark.parametrize("lagging", [[2], [2, 3]], ids=["one", "two"])
async def test_a_former_topic_that_brokers_keep_reporting_fails_nothing(
    lagging: list[int],
) -> None:
    """They look right at first, and the up-to-date broker is doubted for seconds, not for ever."""
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("t", assignments=[[1]])
        for node_id in lagging:
            cluster.brokers[node_id].freeze_metadata()
        cluster.delete_topic("t")
        cluster.create_topic("t", assignments=[[1]] * 3)
        settings = {"metadata_max_age": 2.0, "retry_backoff": 2.0, "retry_backoff_max": 2.0}
        first = cluster.bootstrap.split(",")[0]
        async with kclient.Producer(first, linger=0.0, **settings) as producer:
            counts, deliveries = set(), []
            began = now()
            for turn in range(450):
                if turn % 100 == 20:
                    cluster.faults.close("Metadata", broker=1)
                count = producer._core.metadata.view.partition_count("t") or 1
                counts.add(count)
                deliveries += [producer.send("t", b"y", partition=p) for p in range(count)]
                await asyncio.sleep(0.2)
            assert now() - began >= 90.0
            assert counts == {1, 3}
            cluster.brokers[2].thaw_metadata()
            cluster.brokers[3].thaw_metadata()
            for delivery in deliveries:
                await delivery
