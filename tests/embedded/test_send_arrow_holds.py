"""``send_arrow`` of a million rows doesn't hold the event loop for long.

See ``tests.support.holds`` for how. The pure build does a tenth of the work.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import kclient
from kclient.errors import FlushFailed, RowsNotDelivered, RowsRejected
from kclient.testing import Cluster, LoopProbe
from tests.support.holds import held, run_held, scaled

MIB = 1024 * 1024


def tables() -> dict[str, Callable[[int], Any]]:
    """Tables whose inspection may take long."""
    value = b"x" * 100

    def repeated(count: int) -> Any:
        indices = pa.array(array("i", bytes(4 * count)))
        return pa.DictionaryArray.from_arrays(indices, pa.array([value * 10]))

    return {
        "values": lambda count: {"value": [value] * count},
        "keys": lambda count: {"value": [value] * count, "key": [b"%d" % i for i in range(count)]},
        "dictionary": lambda count: {"value": repeated(count // 4)},
        "views": lambda count: {"value": pa.array([value] * count, pa.binary_view())},
        "long keys": lambda count: {
            "value": [b""] * (count // 10),
            "key": [b"%d" % i + b"k" * 200 for i in range(count // 10)],
        },
        "headers": lambda count: {
            "value": [value] * (count // 20),
            "headers": pa.array(
                [[("name", value[:9])] * 20] * (count // 20), pa.map_(pa.string(), pa.binary())
            ),
        },
        "all rejected": lambda count: {"value": [value] * count, "timestamp": [-5] * count},
    }


@pytest.mark.parametrize(
    ("name", "partitions"), [("values", 6), ("keys", 6), *((name, 1000) for name in tables())]
)
def test_a_million_rows_in_one_call_do_not_hold_the_loop(name: str, partitions: int) -> None:
    count = scaled(1_000_000)
    table = pa.table(tables()[name](count))

    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic("t", partitions=partitions)
            settings: Any = {"buffer_memory": 256 * MIB}
            async with kclient.Producer(cluster.bootstrap, **settings) as out:
                await out.partitions_for("t")
                with LoopProbe() as probe:
                    await asyncio.sleep(0)  # the probe sees steps that begin after it
                    try:
                        assert await out.send_arrow("t", table) == table.num_rows
                    except RowsRejected as error:
                        assert error.count == table.num_rows
            held(probe)

    run_held(main)


def test_large_values_and_large_batches_do_not_hold_the_loop() -> None:
    count = scaled(2000)
    table = pa.table({"value": [b"x" * 100_000] * count})

    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic("t", partitions=4)
            settings: Any = {"buffer_memory": 512 * MIB, "batch_size": 900_000}
            async with kclient.Producer(cluster.bootstrap, **settings) as out:
                with LoopProbe() as probe:
                    await asyncio.sleep(0)  # the probe sees steps that begin after it
                    assert await out.send_arrow("t", table) == count
            held(probe)

    run_held(main)


def test_keys_of_twenty_kilobytes_do_not_hold_the_loop() -> None:
    count = scaled(9000)
    table = pa.table({"value": [b""] * count, "key": [b"%020d" % i * 1000 for i in range(count)]})

    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic("t", partitions=4)
            async with kclient.Producer(cluster.bootstrap, buffer_memory=256 * MIB) as out:
                await out.partitions_for("t")
                with LoopProbe() as probe:
                    await asyncio.sleep(0)  # the probe sees steps that begin after it
                    assert await out.send_arrow("t", table) == count
            held(probe)

    run_held(main)


class Busy:
    """A slow partitioner of the application."""

    def partition(self, topic: str, key: bytes | None, partition_count: int) -> int:
        return sum(range(30_000)) % partition_count


def test_a_slow_partitioner_does_not_hold_the_loop() -> None:
    count = 600
    table = pa.table({"value": [b"v"] * count})

    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic("t", partitions=4)
            async with kclient.Producer(cluster.bootstrap, partitioner=Busy()) as out:
                await out.partitions_for("t")
                with LoopProbe() as probe:
                    await asyncio.sleep(0)  # the probe sees steps that begin after it
                    assert await out.send_arrow("t", table) == count
            held(probe)

    run_held(main)


def test_naming_half_a_million_failed_rows_does_not_hold_the_loop() -> None:
    count = scaled(500_000)
    table = pa.table({"value": [b"x" * 20] * count})

    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic("t", partitions=4)
            settings: Any = {"buffer_memory": 256 * MIB, "linger": 4.0, "batch_size": 200_000}
            out: Any = kclient.Producer(cluster.bootstrap, **settings)
            await out.start()
            await out.partitions_for("t")
            cluster.faults.hold("Produce", times=None)
            sending = asyncio.create_task(out.send_arrow("t", table))
            while out.health().buffered_bytes < 41 * count:  # noqa: ASYNC110 - no event for it
                await asyncio.sleep(0)
            with LoopProbe() as probe:
                with pytest.raises(FlushFailed):
                    await out.close(timeout=0.0)
                with pytest.raises(RowsNotDelivered) as reported:
                    await sending
            assert reported.value.count == reported.value.taken == count
            assert reported.value.row_numbers() == list(range(count))
            held(probe)

    run_held(main)
