"""Log lines name their client: a process may have many, all logging to ``kclient``."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import pytest

import kclient
from kclient.errors import FlushFailed
from kclient.hooks import Hooks
from kclient.testing import Cluster

NAMED = re.compile(r"^\[(orders|kclient) (producer|consumer|admin)-\d+\] ")


async def test_every_line_begins_with_the_name_of_its_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "kclient")
    loop: Any = asyncio.get_running_loop()
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", partitions=2, replication_factor=2)
        producer = kclient.Producer(cluster.bootstrap, client_id="orders", delivery_timeout=2.0)
        consumer = kclient.Consumer(cluster.bootstrap, "t", auto_offset_reset="earliest")
        async with consumer, kclient.Admin(cluster.bootstrap) as admin:
            await producer.start()
            await producer.send("t", b"v")
            producer.send("nowhere", b"v")
            await consumer.poll(timeout=1.0)
            loop.network.cut()
            await cluster.crash(1)
            await admin.list_topics()
            await consumer.poll(timeout=1.0)
            await cluster.restart(1)
            await admin.create_topics([kclient.NewTopic("new")])
            with pytest.raises(FlushFailed):
                await producer.close()
            names = {
                producer.health().client.name,
                consumer.health().client.name,
                admin.health().name,
            }
        admin._core._supervisor.listener_failed(ValueError("a defect"))
    ours = [r for r in caplog.records if not r.name.startswith("kclient.testing")]
    assert len(ours) > 20
    unnamed = [r.getMessage() for r in ours if not NAMED.match(r.getMessage())]
    assert unnamed == []
    seen = {r.getMessage().partition("]")[0].removeprefix("[") for r in ours}
    assert seen == names
    assert len(names) == 3
    assert {getattr(r, "client", None) for r in ours} == names


def test_a_name_with_a_percent_sign_spoils_no_line(caplog: pytest.LogCaptureFixture) -> None:
    log = Hooks(client="100%s").log(logging.getLogger("kclient.test"))
    log.warning("two of %d", 3)
    assert caplog.messages == ["[100%s] two of 3"]
