"""A year of flights through a topic and back: ``python -m examples.flights``.

All 336,776 flights of 2013 out of New York become events in time order, keyed by tail number,
compressed, sent to a new topic and read back; counts and the order per key are checked, and a
short report is printed. The cluster runs in this process, unless ``--bootstrap host:port`` names
another one. The longest time that one callback held the event loop is printed at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import sys
import time
import uuid
from collections import Counter

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.flights.events import Event, load
from examples.flights.report import Report
from kclient import Admin, Consumer, KafkaError, NewTopic, Producer, ProducerConfig
from kclient.record import IMPLEMENTATION
from kclient.testing import Cluster, LoopProbe


async def produce(
    bootstrap: str, topic: str, events: list[Event], codec: str, bar: Progress
) -> None:
    task = bar.add_task("sending", total=len(events))
    async with Producer(bootstrap, config=ProducerConfig(compression=codec)) as producer:
        for sent, event in enumerate(events, 1):
            await producer.enqueue(topic, event.value, key=event.key, timestamp=event.timestamp)
            if sent % 1000 == 0:
                bar.update(task, completed=sent)
        await producer.flush()
    bar.update(task, completed=len(events))


async def consume(bootstrap: str, topic: str, count: int, bar: Progress) -> Report:
    report = Report(count)
    task = bar.add_task("reading", total=count)
    async with Consumer(bootstrap, topic, auto_offset_reset="earliest") as consumer:
        while report.records < count:
            records = await consumer.poll(max_records=500, timeout=30.0)
            if not records:
                break
            report.add(records)
            bar.update(task, completed=report.records)
    return report


async def run(options: argparse.Namespace, events: list[Event], console: Console) -> Report:
    topic = f"flights-{uuid.uuid4().hex[:8]}"
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    async with contextlib.AsyncExitStack() as stack:
        if options.bootstrap is None:
            cluster = await stack.enter_async_context(Cluster(brokers=3))
            bootstrap = cluster.bootstrap
        else:
            bootstrap = options.bootstrap
        async with Admin(bootstrap) as admin:
            await admin.create_topics([NewTopic(topic, partitions=options.partitions)])
        console.print(f"topic {topic} on {bootstrap}")
        bar = stack.enter_context(Progress(*columns, console=console))
        await produce(bootstrap, topic, events, options.compression, bar)
        return await consume(bootstrap, topic, len(events), bar)


def conclude(report: Report, events: list[Event], console: Console) -> int:
    report.show(console)
    problems = report.problems(Counter(event.key for event in events))
    for problem in problems:
        console.print(f"[red]{problem}[/red]")
    if not problems:
        console.print("Checked: every flight came back once, in the order of its plane.")
    return 1 if problems else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.flights", description=__doc__)
    parser.add_argument("--bootstrap", help="host:port of a cluster; default: one in this process")
    parser.add_argument("--compression", default="lz4", help="none, gzip, snappy, lz4 or zstd")
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--limit", type=int, help="only the first so many flights")
    parser.add_argument("--max-hold-ms", type=float, help="fail if a callback held the loop longer")
    options = parser.parse_args()
    console = Console()
    started = time.monotonic()
    events = load(options.limit)
    console.print(f"{len(events):,} flights read in {time.monotonic() - started:.1f} s")
    # The year stays in memory for the whole run: spare the collector from walking it on the loop.
    gc.freeze()
    with LoopProbe() as probe:
        report = asyncio.run(run(options, events, console))
    code = conclude(report, events, console)
    console.print(
        f"Longest hold of the event loop by one callback: {probe.longest * 1000:.1f} ms of thread "
        f"CPU, by {probe.longest_callback} ({probe.callbacks:,} callbacks, {IMPLEMENTATION} build)"
    )
    if options.max_hold_ms is not None and probe.longest * 1000 > options.max_hold_ms:
        console.print(f"[red]that is over the bound of {options.max_hold_ms} ms[/red]")
        return 1
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KafkaError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted")
