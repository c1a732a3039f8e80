"""Every way to lose the response to one batch of a window, times what happens to it next (R2).

Whole clients on virtual time. The response to one of the first five batches is lost with its
connection; the repeat of that batch then meets one of six outcomes; at the end the history of all
records is compared with the log: none lost, none doubled, none reordered, and every failure that
may have been written reports so.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.producer import Delivery
from kclient.testing import Cluster
from tests.history import History, Place, Send, Written, check
from tests.virtual.recovering import wired
from tests.virtual.relay import now
from tests.virtual.wire import Fate, Sent, Wire

RECORDS = 12
P = Place("t", 0)
NEXT = {
    "ok": 2,
    "duplicate": 2,
    "out of order": 2,
    "timeout": 3,
    "not leader": 3,
    "cut": 3,
}
"""What becomes of the repeat, and how often the batch is sent then in all."""


@pytest.mark.parametrize("following", NEXT)
@pytest.mark.parametrize("window", range(1, 6))
@pytest.mark.parametrize("lost", range(1, 6))
@pytest.mark.parametrize("behind", ["written", "unread"])
async def test_a_lost_response_neither_loses_nor_doubles_nor_reorders(
    lost: int, window: int, following: str, behind: str
) -> None:
    """Those behind it in the window are in the log as well, or got stuck on the way."""
    history = History(now)
    history.producer("p")
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", assignments=[[1, 2]])
        settings = {"max_in_flight": window, "request_timeout": 3.0}
        async with wired(cluster, **settings) as (wire, producer):
            wire.on_reported = lambda reported: (
                Fate.KEEP if number(reported.batch) == lost else Fate.PASS
            )
            if behind == "unread":
                wire.on_sent = lambda sent: Fate.KEEP if number(sent) > lost else Fate.PASS
            deliveries = [send(producer, history, n) for n in range(1, RECORDS + 1)]
            await asyncio.sleep(0.5)
            in_doubt = len(wire.sent) - (lost - 1)
            assert 1 <= in_doubt <= window
            assert len(wire.reported) == lost - 1
            wire.cut()
            prepare(following, cluster, wire)
            await asyncio.gather(*deliveries, return_exceptions=True)
        written = [Written(r.offset, r.key, r.value) for r in cluster.records("t")]
        assert len(wire.of(b"%d" % lost)) == NEXT[following]
        assert {one.node for one in wire.sent} == ({1, 2} if following == "not leader" else {1})
    report = check(history, {P: written})
    assert report, f"{report}\n{wire.sent}"
    if following == "out of order":
        # The broker forgot what it has: sending that again could double it, so it isn't sent.
        assert report.unknown == in_doubt
        assert len(wire.owners) == 2
    else:
        assert report.unknown == 0
        assert len(wire.owners) == 1
    assert report.failed == 0
    assert report.acknowledged + report.unknown == RECORDS


def number(sent: Sent) -> int:
    (value,) = sent.values
    return int(value)


def send(producer: Any, history: History, n: int) -> Delivery:
    """Send one record, and note what becomes of it."""
    sent = history.send("p", "t", b"%d" % n, partition=0)
    delivery: Delivery = producer.send("t", b"%d" % n, partition=0)
    history.taken(sent)
    delivery.add_done_callback(partial(note, history, sent))
    return delivery


def note(history: History, sent: Send, delivery: Delivery) -> None:
    error = delivery.exception()
    if error is None:
        history.ok(sent, P, delivery.result().offset)
    elif error.maybe_written is False:
        history.fail(sent, repr(error))
    else:
        history.info(sent, repr(error))


def prepare(following: str, cluster: Cluster, wire: Wire) -> None:
    """Have this happen to the next request, which is the repeat of the batch."""
    if following == "duplicate":
        cluster.faults.error("Produce", ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    elif following == "out of order":
        cluster.faults.error("Produce", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    elif following == "timeout":
        cluster.faults.drop("Produce", after=True)
    elif following in ("not leader", "cut"):

        def meet(sent: Sent) -> Fate:
            if len(wire.of(sent.values[0])) != 2:
                return Fate.PASS
            wire.on_sent = lambda _: Fate.PASS
            if following == "cut":
                return Fate.CUT
            cluster.move_leader("t", 0, 2)  # while the request is on its way
            return Fate.PASS

        wire.on_sent = meet
