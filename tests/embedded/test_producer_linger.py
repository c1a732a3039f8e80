"""Records that follow each other while batches linger for less than the loop clock's resolution.

uvloop counts in whole milliseconds: it calls at once what is due before the next one.
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
