"""The cells: a base, and one factor changed at a time; with the entries that run in each.

A cell is a workload with settings; each of its entries is run in every round. The registry is data:
``runner`` runs it, ``report`` and ``floors`` name cells by ``Cell.name``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from benchmarks.entries import ENTRIES

MIB = 1024 * 1024
WRITTEN, READ_LONG = 300_000, 500_000
WRITTEN_SHORT, READ_SHORT = 150_000, 200_000
"""Records of a run with values of 100 bytes; the short amounts are for cells without a floor."""
SEND = (
    "kclient send",
    "kclient send_many",
    "confluent produce, callback",
    "confluent produce_batch",
    "aiokafka send",
)
ONE_BY_ONE = ("kclient send", "kclient send_many", "confluent produce, callback", "aiokafka send")
READ = ("kclient poll", "kclient poll_arrow", "confluent consume", "aiokafka getmany")
MEMBERS_READ = ("kclient poll, in a group", "kclient poll_arrow, in a group")
SPREAD_OUT = (
    "kclient enqueue",
    "kclient send_many",
    "confluent produce, callback",
    "aiokafka send",
)
TOPICS_OUT = ("kclient enqueue", "confluent produce, callback", "aiokafka send")
SPREAD_IN = (
    "kclient poll",
    "kclient poll, in a group",
    "confluent consume",
    "aiokafka getmany",
)

_SPREAD: dict[str, Any] = {
    "spread": True,
    "batch_size": 16 * 1024,
    "linger": 1.0,
    "window": 10 * MIB,
}
"""Equal for all numbers of partitions and topics: batches close because they are full (about 140
records), not because linger is over; so each record has the same share of a batch's cost."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A workload with its settings.

    Attributes:
        name: ``workload: factor value``; unique.
        workload: The kind of entry that runs in it; decides how topics are made and what is shown.
        entries: Names of entries, in the order of the report.
        settings: Fields of ``Job`` other than the base's.
        topics: How many topics.
        amount: Records of each run, for all entries.
        records: Per entry, where the amount is part of what is measured; "" is for all others.
        quick: Whether ``--quick`` includes it.
        tls: It needs a TLS listener.
        figure: The outcome's figure that the report shows and compares.
        scales: Whether ``--quick`` may take fewer records than ``records`` has.
        rounds: Maximum, unless the user gives ``--rounds``; for figures that vary little.
    """

    name: str
    workload: str
    entries: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    topics: int = 1
    amount: int = 0
    records: dict[str, int] = field(default_factory=dict)
    quick: bool = False
    tls: bool = False
    figure: str = "cpu_us"
    scales: bool = True
    rounds: int = 1_000

    @property
    def factor(self) -> str:
        """What is changed, such as ``lz4``."""
        return self.name.partition(": ")[2]


def _entries(workload: str) -> tuple[str, ...]:
    return tuple(entry.name for entry in ENTRIES.values() if entry.workload == workload)


def _pair(
    factor: str,
    out: tuple[str, ...],
    into: tuple[str, ...],
    amounts: tuple[int, int] = (WRITTEN_SHORT, READ_SHORT),
    quick: bool = False,
    tls: bool = False,
    **settings: Any,
) -> list[Cell]:
    """The same change for writing and for reading."""
    return [
        Cell(
            f"{workload}: {factor}",
            workload,
            entries,
            settings,
            amount=amounts[at],
            quick=quick,
            tls=tls,
        )
        for at, (workload, entries) in enumerate((("produce", out), ("consume", into)))
    ]


def _partitions(count: int) -> list[Cell]:
    settings = _SPREAD | {"partitions": count, "keyed": True}
    name = f"{count:,} partition{'s' if count > 1 else ''}"
    slow = 40_000 if count >= 1_000 else 60_000  # 70 us per record there: a minute for full batches
    out = {"": 400_000, "kclient send_many": 1_000_000, "kclient enqueue": 1_000_000}
    out["aiokafka send"] = slow
    # So that of a thousand partitions' batches few are the last ones, which aren't full.
    into = {"": 200_000, "kclient poll": 2_400_000, "kclient poll, in a group": 2_400_000}
    quick = count in (10, 1_000)
    return [
        Cell(f"produce: {name}", "produce", SPREAD_OUT, settings, records=out, quick=quick),
        Cell(f"consume: {name}", "consume", SPREAD_IN, settings, records=into, quick=quick),
    ]


def _topics(count: int) -> list[Cell]:
    name = f"{count} topic{'s' if count > 1 else ''}"
    out = {"": 600_000, "aiokafka send": 60_000}
    into = {"": 200_000, "kclient poll": 1_200_000}
    return [
        Cell(f"produce: {name}", "produce", TOPICS_OUT, _SPREAD, topics=count, records=out),
        Cell(f"consume: {name}", "consume", SPREAD_IN, _SPREAD, topics=count, records=into),
    ]


def _all() -> list[Cell]:
    cells = [
        Cell("produce: base", "produce", _entries("produce"), amount=WRITTEN, quick=True),
        Cell("consume: base", "consume", _entries("consume"), amount=READ_LONG, quick=True),
    ]
    cells += _pair("lz4", SEND, READ + MEMBERS_READ, (WRITTEN, READ_LONG), quick=True, codec="lz4")
    for codec in ("zstd", "snappy"):
        cells += _pair(codec, SEND, READ, codec=codec)
    cells += _pair("gzip", SEND, READ, (100_000, READ_SHORT), codec="gzip")
    cells += _pair(
        "1 KiB", ONE_BY_ONE, READ + MEMBERS_READ[:1], (100_000, 200_000), quick=True, size=1024
    )
    cells += _pair("100 KiB", ONE_BY_ONE, READ, (1_500, 2_000), size=100 * 1024, window=100)
    cells += _pair("key", SEND, READ, keyed=True)
    cells += _pair("headers", ONE_BY_ONE, READ, headers=True)
    out: tuple[str, ...]
    into: tuple[str, ...]
    out = ("kclient send", "kclient 1,000 tasks", "aiokafka send", "aiokafka 1,000 tasks")
    into = ("kclient poll", "kclient async for", "aiokafka getmany", "aiokafka async for")
    cells += _pair("uvloop", out, into, loop="uvloop")
    out = ("kclient send", "kclient enqueue_nowait", "kclient send_many")
    into = ("kclient poll", "kclient async for", "kclient poll_arrow", "kclient poll, in a group")
    cells += _pair("pure build", out, into, (100_000, 200_000), quick=True, pure=True)
    peers = ("kafka-python send",), ("kafka-python poll",)
    cells += _pair("TLS", ONE_BY_ONE + peers[0], READ + peers[1], (WRITTEN, READ_LONG), tls=True)
    for partitions in (1, 10, 100, 1_000):
        cells += _partitions(partitions)
    for topics in (1, 32):
        cells += _topics(topics)
    return cells + _others()


def _others() -> list[Cell]:
    latency: dict[str, Any] = {"linger": 0.0, "warm_up": 200}
    consumers = tuple(name for name in _entries("idle") if name.endswith("consumers"))
    producers = tuple(name for name in _entries("idle") if name.endswith("producers"))
    members = tuple(name for name in _entries("idle") if name.endswith("members"))
    idle: dict[str, Any] = {"partitions": 1, "warm_up": 1}
    fixed: dict[str, Any] = {"scales": False}
    return [
        Cell(
            "latency: one awaited send",
            "latency",
            _entries("latency"),
            latency,
            records={"": 2_000},
            quick=True,
            figure="p50_us",
            **fixed,
        ),
        Cell(
            "transactions: one after the other",
            "transactions",
            _entries("transactions"),
            {"linger": 0.0, "warm_up": 100},
            records={"": 2_000},
            figure="p50_us",
            **fixed,
        ),
        Cell(
            "produce in transactions",
            "produce in transactions",
            _entries("produce in transactions"),
            amount=WRITTEN_SHORT,
        ),
        Cell(
            "latency: send to received",
            "end to end",
            _entries("end to end"),
            latency,
            records={"": 1_000},
            figure="p50_us",
            **fixed,
        ),
        Cell(
            "longest hold: 1M records read",
            "hold reading",
            _entries("hold reading"),
            records={"": 1_000_000},
            figure="longest_ms",
            **fixed,
        ),
        Cell(
            "longest hold: 150k records written",
            "hold writing",
            _entries("hold writing"),
            records={"": 150_000},
            figure="longest_ms",
            **fixed,
        ),
        Cell("idle: 100 consumers", "idle", consumers, idle, records={"": 100}, **_IDLE),
        Cell("idle: 100 members of groups", "idle", members, idle, records={"": 100}, **_IDLE),
        Cell("idle: 100 producers", "idle", producers, idle, records={"": 100}, **_IDLE),
        Cell("import", "import", _entries("import"), quick=True, figure="cpu_ms", **fixed),
        Cell(
            "metadata: 100,000 partitions",
            "metadata",
            _entries("metadata"),
            records={"": 100_000},
            quick=True,
            figure="update_s",
            **fixed,
        ),
    ]


_IDLE: dict[str, Any] = {"figure": "kib", "scales": False, "rounds": 1}
CELLS: dict[str, Cell] = {cell.name: cell for cell in _all()}
