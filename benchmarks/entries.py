"""The entries: every measured way to write or read records with a client, by name.

An entry names the function that runs it, which is imported in the worker process only, so that this
module and the runner load no client. All entries of a cell get the number of records that the cell
has; the few for which that would take too long set ``most``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.job import Job, Outcome

KCLIENT, CONFLUENT, AIO = "kclient", "confluent-kafka", "confluent-kafka aio"
AIOKAFKA, KAFKA_PYTHON = "aiokafka", "kafka-python"
_ALL = 10_000_000
_WAITING = 10_000
CLIENTS = (KCLIENT, CONFLUENT, AIO, AIOKAFKA, KAFKA_PYTHON)
NOBODY = "no client"
"""Owner of the entries that measure how fast the broker responds to the least possible code."""
JAVA = "Java's client"
"""Measured where a bound names it."""
OWNERS = (*CLIENTS, JAVA, NOBODY)


@dataclass(frozen=True, slots=True)
class Entry:
    """One way to write or read records with a client.

    Attributes:
        name: As in reports, and for ``--only``.
        client: One of ``OWNERS``.
        workload: The kind of cell that it can be in.
        run: ``module:function`` under ``benchmarks.clients``.
        tuned: It has the client's own best settings; such rows are shown, but have no floors.
        on_loop: Whether it runs on an asyncio loop, so that uvloop can matter.
    """

    name: str
    client: str
    workload: str
    run: str
    tuned: bool = False
    on_loop: bool = False
    most: int = _ALL
    """Records of one run at most, for entries that would take more than eight seconds. No floor
    compares with them."""

    @property
    def slow(self) -> bool:
        """Mostly waits, or would run far too long; ``--quick`` leaves it out."""
        return self.most <= _WAITING

    def function(self) -> Callable[[Job], Outcome]:
        module, _, name = self.run.partition(":")
        found = getattr(importlib.import_module(f"benchmarks.clients.{module}"), name)
        run: Callable[[Job], Outcome] = found
        return run


def _of(client: str, workload: str, on_loop: bool, *entries: tuple[str, str]) -> list[Entry]:
    return [
        Entry(name, client, workload, run, tuned=name.endswith(", tuned"), on_loop=on_loop)
        for name, run in entries
    ]


_TASKS = "confluent aio 1,000 tasks"
"""Its buffer of 1,000 records and its wait of a second limit it to about 1,000 records a second."""
_SENDS = (
    "confluent produce, callback",
    "confluent aio produce",
    "aiokafka send",
    "kafka-python send",
)
_AWAITED = (
    "confluent produce + poll",
    "confluent aio awaited produce",
    "aiokafka send_and_wait",
    "kafka-python send + get",
)
_THROUGH = ("confluent produce to poll", "aiokafka send to getmany", "kafka-python send to poll")
_PRODUCE = [
    *_of(
        KCLIENT,
        "produce",
        True,
        ("kclient send", "kclient_produce:send"),
        ("kclient send, gathered", "kclient_produce:gathered"),
        ("kclient enqueue", "kclient_produce:enqueue"),
        ("kclient enqueue_nowait", "kclient_produce:enqueue_nowait"),
        ("kclient send_many", "kclient_produce:send_many"),
        ("kclient send_arrow", "kclient_produce:send_arrow"),
        ("kclient 1,000 tasks", "kclient_produce:tasks"),
    ),
    *_of(
        CONFLUENT,
        "produce",
        False,
        ("confluent produce, callback", "confluent_entries:produce_callback"),
        ("confluent produce, no callback", "confluent_entries:produce_silent"),
        ("confluent produce_batch", "confluent_entries:produce_batch"),
        ("confluent produce, callback, tuned", "confluent_entries:produce_callback"),
        ("confluent produce, no callback, tuned", "confluent_entries:produce_silent"),
        ("confluent produce_batch, tuned", "confluent_entries:produce_batch"),
    ),
    *_of(
        AIO,
        "produce",
        True,
        ("confluent aio produce", "confluent_aio:produce"),
    ),
    Entry(_TASKS, AIO, "produce", "confluent_aio:tasks", on_loop=True, most=2_000),
    Entry(
        f"{_TASKS}, tuned",
        AIO,
        "produce",
        "confluent_aio:tasks",
        tuned=True,
        on_loop=True,
        most=10_000,
    ),
    *_of(
        AIOKAFKA,
        "produce",
        True,
        ("aiokafka send", "aiokafka_entries:send"),
        ("aiokafka create_batch", "aiokafka_entries:create_batch"),
        ("aiokafka 1,000 tasks", "aiokafka_entries:tasks"),
        ("aiokafka send, tuned", "aiokafka_entries:send"),
    ),
    Entry("kafka-python send", KAFKA_PYTHON, "produce", "kafka_python_entries:send", most=50_000),
]
_CONSUME = [
    *_of(
        KCLIENT,
        "consume",
        True,
        ("kclient poll", "kclient_consume:poll"),
        ("kclient async for", "kclient_consume:async_for"),
        ("kclient poll_arrow", "kclient_consume:poll_arrow"),
        ("kclient poll, in a group", "kclient_consume:poll_in_group"),
        ("kclient async for, in a group", "kclient_consume:async_for_in_group"),
        ("kclient poll_arrow, in a group", "kclient_consume:poll_arrow_in_group"),
    ),
    *_of(
        CONFLUENT,
        "consume",
        False,
        ("confluent consume", "confluent_entries:consume"),
        ("confluent consume, tuned", "confluent_entries:consume"),
    ),
    *_of(
        AIO,
        "consume",
        True,
        ("confluent aio consume", "confluent_aio:consume"),
    ),
    Entry("confluent aio poll", AIO, "consume", "confluent_aio:poll", on_loop=True, most=10_000),
    *_of(
        AIOKAFKA,
        "consume",
        True,
        ("aiokafka getmany", "aiokafka_entries:getmany"),
        ("aiokafka async for", "aiokafka_entries:async_for"),
        ("aiokafka getmany, tuned", "aiokafka_entries:getmany"),
    ),
    *_of(KAFKA_PYTHON, "consume", False, ("kafka-python poll", "kafka_python_entries:poll")),
]
_OTHERS = [
    *_of(
        KCLIENT,
        "latency",
        True,
        ("kclient awaited send", "latency:kclient"),
        ("kclient awaited send, uvloop", "latency:kclient_uvloop"),
    ),
    *_of(
        CONFLUENT,
        "latency",
        False,
        ("confluent produce + poll", "latency:confluent"),
        ("confluent produce + flush", "latency:confluent_flush"),
    ),
    Entry("confluent aio awaited produce", AIO, "latency", "latency:confluent_aio", most=2),
    Entry(
        "confluent aio awaited produce, tuned",
        AIO,
        "latency",
        "latency:confluent_aio",
        tuned=True,
        most=30,
    ),
    *_of(
        AIOKAFKA,
        "latency",
        True,
        ("aiokafka send_and_wait", "latency:aiokafka"),
        ("aiokafka send_and_wait, uvloop", "latency:aiokafka_uvloop"),
    ),
    Entry("kafka-python send + get", KAFKA_PYTHON, "latency", "latency:kafka_python"),
    *_of(
        NOBODY,
        "latency",
        False,
        ("no client: a blocking socket", "bare:blocking"),
        ("no client: asyncio", "bare:on_asyncio"),
        ("no client: uvloop", "bare:on_uvloop"),
    ),
    *_of(
        KCLIENT,
        "transactions",
        True,
        ("kclient one-record transaction", "transactions:kclient_one"),
        ("kclient empty transaction", "transactions:kclient_empty"),
    ),
    *_of(
        CONFLUENT,
        "transactions",
        False,
        ("confluent one-record transaction", "transactions:confluent_one"),
        ("confluent empty transaction", "transactions:confluent_empty"),
    ),
    *_of(
        JAVA,
        "transactions",
        False,
        ("java one-record transaction", "java_client:one_record"),
        ("java empty transaction", "java_client:empty"),
    ),
    Entry(
        "aiokafka one-record transaction",
        AIOKAFKA,
        "transactions",
        "transactions:aiokafka_one",
        on_loop=True,
    ),
    *_of(
        KCLIENT,
        "produce in transactions",
        True,
        ("kclient enqueue, no transaction", "transactions:kclient_plain"),
        ("kclient transactions of 1,000", "transactions:kclient_by_count"),
        ("kclient transactions of 100 ms", "transactions:kclient_by_time"),
    ),
    *_of(
        CONFLUENT,
        "produce in transactions",
        False,
        ("confluent transactions of 1,000", "transactions:confluent_by_count"),
        ("confluent transactions of 100 ms", "transactions:confluent_by_time"),
    ),
    *_of(
        KCLIENT,
        "end to end",
        True,
        ("kclient send to poll", "end_to_end:kclient"),
        ("kclient send to poll, uvloop", "end_to_end:kclient_uvloop"),
    ),
    Entry("confluent produce to poll", CONFLUENT, "end to end", "end_to_end:confluent"),
    Entry("aiokafka send to getmany", AIOKAFKA, "end to end", "end_to_end:aiokafka"),
    Entry("kafka-python send to poll", KAFKA_PYTHON, "end to end", "end_to_end:kafka_python"),
    *_of(
        KCLIENT,
        "hold reading",
        True,
        ("kclient poll, probed", "holds:kclient_poll"),
        ("kclient async for, probed", "holds:kclient_async_for"),
    ),
    Entry("confluent aio consume, probed", AIO, "hold reading", "holds:confluent_aio_consume"),
    Entry("aiokafka getmany, probed", AIOKAFKA, "hold reading", "holds:aiokafka_getmany"),
    Entry("kclient burst", KCLIENT, "hold writing", "holds:kclient_burst"),
    Entry("confluent aio burst", AIO, "hold writing", "holds:confluent_aio_burst"),
    Entry("aiokafka burst", AIOKAFKA, "hold writing", "holds:aiokafka_burst"),
    *[
        Entry(f"{client} idle {kind}", owner, "idle", f"idle:{function}_{kind}")
        for kind in ("consumers", "producers")
        for client, owner, function in (
            ("kclient", KCLIENT, "kclient"),
            ("confluent", CONFLUENT, "confluent"),
            ("confluent aio", AIO, "confluent_aio"),
            ("aiokafka", AIOKAFKA, "aiokafka"),
            ("kafka-python", KAFKA_PYTHON, "kafka_python"),
        )
        if (client, kind) != ("confluent aio", "producers")
    ],
    *[
        Entry(f"{client} idle members", owner, "idle", f"idle_groups:{function}_members")
        for client, owner, function in (
            ("kclient", KCLIENT, "kclient"),
            ("confluent", CONFLUENT, "confluent"),
            ("confluent aio", AIO, "confluent_aio"),
            ("aiokafka", AIOKAFKA, "aiokafka"),
            ("kafka-python", KAFKA_PYTHON, "kafka_python"),
        )
    ],
    *[
        Entry(name, client, "import", "imports:timed")
        for name, client in (
            ("import of kclient", KCLIENT),
            ("import of kclient, the name alone", KCLIENT),
            ("import of confluent-kafka", CONFLUENT),
            ("import of confluent-kafka aio", AIO),
            ("import of aiokafka", AIOKAFKA),
            ("import of kafka-python", KAFKA_PYTHON),
        )
    ],
    Entry("kclient metadata", KCLIENT, "metadata", "big_metadata:kclient"),
    Entry("aiokafka metadata", AIOKAFKA, "metadata", "big_metadata:aiokafka"),
]
BESIDE: dict[str, tuple[str, ...]] = {
    "kclient send": _SENDS,
    "kclient send, gathered": _SENDS,
    "kclient enqueue": _SENDS,
    "kclient enqueue_nowait": ("confluent produce, no callback",),
    "kclient send_many": ("confluent produce_batch", "aiokafka create_batch"),
    "kclient send_arrow": ("confluent produce_batch",),
    "kclient 1,000 tasks": (_TASKS, "aiokafka 1,000 tasks"),
    "kclient poll": (
        "confluent consume",
        "confluent aio consume",
        "aiokafka getmany",
        "kafka-python poll",
    ),
    "kclient async for": ("confluent aio poll", "aiokafka async for"),
    "kclient poll_arrow": ("confluent consume",),
    "kclient poll, in a group": ("confluent consume", "aiokafka getmany"),
    "kclient async for, in a group": ("aiokafka async for",),
    "kclient poll_arrow, in a group": ("confluent consume",),
    "kclient awaited send": _AWAITED,
    "kclient awaited send, uvloop": _AWAITED,
    "kclient one-record transaction": (
        "confluent one-record transaction",
        "java one-record transaction",
        "aiokafka one-record transaction",
    ),
    "kclient empty transaction": ("confluent empty transaction", "java empty transaction"),
    "kclient transactions of 1,000": ("confluent transactions of 1,000",),
    "kclient transactions of 100 ms": ("confluent transactions of 100 ms",),
    "kclient send to poll": _THROUGH,
    "kclient send to poll, uvloop": _THROUGH,
    "kclient poll, probed": ("confluent aio consume, probed", "aiokafka getmany, probed"),
    "kclient burst": ("confluent aio burst", "aiokafka burst"),
    "kclient idle consumers": (
        "confluent idle consumers",
        "confluent aio idle consumers",
        "aiokafka idle consumers",
    ),
    "kclient idle members": (
        "confluent idle members",
        "confluent aio idle members",
        "aiokafka idle members",
    ),
    "kclient idle producers": (
        "confluent idle producers",
        "aiokafka idle producers",
        "kafka-python idle producers",
    ),
    "import of kclient": (
        "import of confluent-kafka",
        "import of confluent-kafka aio",
        "import of aiokafka",
        "import of kafka-python",
    ),
    "kclient metadata": ("aiokafka metadata",),
}
"""The peers' entries that come closest to each of ours; reports show ratios to these."""
ENTRIES: dict[str, Entry] = {entry.name: entry for entry in (*_PRODUCE, *_CONSUME, *_OTHERS)}
