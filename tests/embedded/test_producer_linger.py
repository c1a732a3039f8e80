"""Records that follow each other while their batches linger for less than a loop's clock tells.

uvloop counts in whole milliseconds: what is due before the next one it calls at once.
"""

from __future__ import annotations

import pytest

import kclient
from kclient.testing import Cluster


@pytest.mark.parametrize("linger", [0.0001, 0.0004, 0.001])
async def test_records_follow_each_other_with_a_linger_below_the_loops_clock(linger: float) -> None:
    async with Cluster() as cluster:
        cluster.create_topic("t")
        async with kclient.Producer(cluster.bootstrap, linger=linger) as producer:
            offsets = [(await producer.send("t", b"value")).offset for _ in range(200)]
    assert offsets == list(range(200))
