"""The hot path of the embedded broker: batches checked, appended, and read again, without sockets.

What a record costs there is the check of the batch that it is in; what follows is per batch. In a
partition of one replica, which is leader, so that the high watermark moves at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kclient.testing.broker_configs import BrokerConfig
from kclient.testing.log import PartitionLog
from kclient.testing.log_validator import check_batch, open_batch
from kclient.testing.topic_configs import TopicConfig
from tests.budgets.hot_path import HotPath, Step
from tests.budgets.records import FIRST_MS, encoded

_PRODUCE_VERSION = 13
_MOST_BYTES = 1 << 30


@contextmanager
def served(count: int) -> Iterator[Step]:
    """What Produce and Fetch do with the batches of a partition."""
    sent = encoded(count)
    config = TopicConfig({}, BrokerConfig({}).topic_defaults)

    def step() -> object:
        log = PartitionLog()
        for data in sent:
            batch = open_batch(data, _PRODUCE_VERSION)
            check_batch(batch, config, FIRST_MS)
            log.append(batch, 0, None)
            log.advance(log.end_offset)
        found = log.read(0, _MOST_BYTES, log.high_watermark, at_least_one=True)
        return b"".join(batch.data for batch in found.batches)

    yield step


PATHS = (HotPath("serve", "the embedded broker's checks and log", served, 2400, pure=True),)
