"""Runs every cell in a process of its own, round after round, and prints medians.

See benchmarks/README.md for what is equal between the clients and what is counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from benchmarks.cells import CONSUME, PARTITIONS, PRODUCE
from kclient import Admin, NewTopic, Producer
from kclient.errors import KafkaError
from kclient.record import IMPLEMENTATION


def run_cell(name: str, options: argparse.Namespace, topic: str) -> dict[str, Any]:
    """One cell in a new process; a client that can't run is named with its last word."""
    command = [sys.executable, "-m", "benchmarks", "--cell", name, "--topic", topic]
    command += ["--bootstrap", options.bootstrap, "--size", str(options.size)]
    command += ["--records", str(options.records)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        return {"cell": name, "error": (done.stderr.strip().splitlines() or ["?"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


async def prepare(options: argparse.Namespace, source: str) -> None:
    """The topic that is read, filled once."""
    async with Admin(options.bootstrap) as admin:
        existing = await admin.list_topics()
        if "warm-up" not in {str(getattr(topic, "name", topic)) for topic in existing}:
            await admin.create_topics([NewTopic("warm-up", partitions=1)])
        await admin.create_topics([NewTopic(source, partitions=PARTITIONS)])
    async with Producer(options.bootstrap, batch_size=128 * 1024) as producer:
        value = b"v" * options.size
        await producer.send_many(source, (value for _ in range(options.records)))


async def make_topic(bootstrap: str) -> str:
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, partitions=PARTITIONS)])
    return topic


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    source = f"bench-source-{uuid.uuid4().hex[:8]}"
    asyncio.run(prepare(options, source))
    results = []
    for _ in range(options.rounds):
        for name in PRODUCE:
            topic = asyncio.run(make_topic(options.bootstrap))
            results.append(run_cell(name, options, topic))
        results += [run_cell(name, options, source) for name in CONSUME]
    return results


def show(results: list[dict[str, Any]], records: int) -> None:
    print(f"{'':28} {'CPU us/record':>14} {'records/s':>12}   ({IMPLEMENTATION} build)")
    for name in (*PRODUCE, *CONSUME):
        mine = [result for result in results if result["cell"] == name]
        failed = [result["error"] for result in mine if "error" in result]
        if failed:
            print(f"{name:28} could not run: {failed[0]}")
            continue
        cpu = statistics.median(result["cpu"] for result in mine) / records * 1e6
        rate = records / statistics.median(result["wall"] for result in mine)
        print(f"{name:28} {cpu:14.2f} {rate:12,.0f}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--bootstrap", required=True, help="host:port of the broker")
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="file for the raw runs")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    parser.add_argument("--topic", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        cell = {**PRODUCE, **CONSUME}[options.cell]
        cpu, wall = cell(options.bootstrap, options.topic, options.records, options.size)
        print(json.dumps({"cell": options.cell, "cpu": cpu, "wall": wall}))
        return 0
    try:
        results = measure(options)
    except KafkaError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    if options.json:
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    show(results, options.records)
    return 0


if __name__ == "__main__":
    sys.exit(main())
