"""``python -m benchmarks.cluster``: what the embedded cluster costs the tests that use it.

Boot, processor time per record where librdkafka writes and reads, a fresh topic per test, memory
and processor time of an idle cluster; each in processes of its own (``cluster_child.py``), medians
of repeated runs, compiled and pure. Prints a table, or JSON with ``--json``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Figures = dict[str, float]

LIMITS = {
    "start_ms": 300.0,
    "cpu_us_per_record": 10.0,
    "fresh_kclient_ms": 30.0,
    "fresh_confluent_ms": 30.0,
    "idle_mb": 15.0,
}
"""Upper limits; twice as much for ``cpu_us_per_record`` in the pure build."""
RECORD_BYTES = 100
WAIT_SECONDS = 120.0


def emit(text: str) -> None:
    """Print a line."""
    print(text, flush=True)


def _environment(build: str) -> dict[str, str]:
    environment = dict(os.environ)
    environment.pop("KCLIENT_PURE", None)
    if build == "pure":
        environment["KCLIENT_PURE"] = "1"
    return environment


@contextmanager
def _child(build: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """One process of ``cluster_child.py``."""
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.cluster_child", *arguments],
        env=_environment(build),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield child
    finally:
        if child.stdin is not None:
            child.stdin.close()
        child.wait(WAIT_SECONDS)


def _answer(child: subprocess.Popen[str]) -> dict[str, Any]:
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line:
        raise SystemExit(f"the process {child.args!r} said nothing: see above")
    found: dict[str, Any] = json.loads(line)
    return found


def ask(build: str, what: str) -> Figures:
    """Return the figures that a process of its own measures."""
    with _child(build, what, str(time.monotonic())) as child:
        return _answer(child)


def ask_server(child: subprocess.Popen[str]) -> Figures:
    """Return processor time and memory of a running cluster."""
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()
    return _answer(child)


def traffic(build: str, records: int) -> Figures:
    """Measure the CPU that librdkafka's records cost the cluster's process."""
    with _child(build, "serve", "0") as server:
        bootstrap = _answer(server)["bootstrap"]
        before = ask_server(server)
        started = time.monotonic()
        _produce(bootstrap, records)
        between = ask_server(server)
        produced = time.monotonic()
        _consume(bootstrap, records)
        after = ask_server(server)
        ended = time.monotonic()
    return {
        "cpu_us_per_record": (after["cpu"] - before["cpu"]) / records * 1e6,
        "produce_us": (between["cpu"] - before["cpu"]) / records * 1e6,
        "consume_us": (after["cpu"] - between["cpu"]) / records * 1e6,
        "produce_per_s": records / (produced - started),
        "consume_per_s": records / (ended - produced),
    }


def _produce(bootstrap: str, records: int) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "queue.buffering.max.messages": records + 1,
        }
    )
    value = os.urandom(RECORD_BYTES)
    failed: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    for number in range(records):
        producer.produce("flights", value, on_delivery=delivered)
        if number % 1000 == 0:
            producer.poll(0)
    left = producer.flush(WAIT_SECONDS)
    if failed or left:
        raise SystemExit(f"{len(failed)} records failed ({failed[:1]}), {left} are left")


def _consume(bootstrap: str, records: int) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
    consumer.assign([TopicPartition("flights", 0, 0)])
    left, until = records, time.monotonic() + WAIT_SECONDS
    while left:
        if time.monotonic() > until:
            raise SystemExit(f"{left} records did not come")
        for message in consumer.consume(min(left, 10_000), timeout=1.0):
            if message.error() is not None:
                raise SystemExit(str(message.error()))
            left -= 1
    consumer.close()


def measure(build: str, repeat: int, records: int) -> Figures:
    """Return the medians of one build."""
    runs: dict[str, list[float]] = {}
    for _ in range(repeat):
        for what in ("boot", "idle", "fresh"):
            for name, figure in ask(build, what).items():
                runs.setdefault(name, []).append(figure)
        for name, figure in traffic(build, records).items():
            runs.setdefault(name, []).append(figure)
    return {name: statistics.median(found) for name, found in runs.items()}


def show(results: dict[str, Figures]) -> None:
    """Print the table."""
    emit(f"{'figure':24}" + "".join(f"{build:>12}" for build in results) + f"{'limit':>10}")
    for name in next(iter(results.values())):
        row = "".join(f"{one[name]:12.2f}" for one in results.values())
        limit = f"{LIMITS[name]:10.0f}" if name in LIMITS else ""
        if name == "cpu_us_per_record":
            limit += f" (pure: {2 * LIMITS[name]:.0f})"
        emit(f"{name:24}{row}{limit}")


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=3, help="runs of each figure")
    parser.add_argument("--records", type=int, default=300_000, help="written and read")
    parser.add_argument("--build", choices=("compiled", "pure"), help="only this one")
    parser.add_argument("--json", action="store_true", help="no table")
    chosen = parser.parse_args()
    builds = [chosen.build] if chosen.build else ["compiled", "pure"]
    results: dict[str, Figures] = {}
    for build in builds:
        if ask(build, "implementation")["compiled"] != (build == "compiled"):
            raise SystemExit(f"asked for the {build} build, got another")
        results[build] = measure(build, chosen.repeat, chosen.records)
    if chosen.json:
        about = {"python": platform.python_version(), "load": os.getloadavg()}
        emit(json.dumps({"about": about, "medians": results}, indent=2))
    else:
        show(results)


if __name__ == "__main__":
    main()
