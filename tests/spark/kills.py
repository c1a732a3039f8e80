"""A stream under kills: Python workers die, the driver dies, and nothing is lost or doubled.

    python -m tests.spark.kills 127.0.0.1:9092 --records 200000 --kills 20 --restarts 5

A driver, a process of its own, reads a topic in micro-batches, and writes each to a folder named by
the batch's number. Meanwhile its Python workers are killed with SIGKILL, and the driver itself some
times; a new one goes on from the checkpoint. At the end every record is in exactly one batch, and
each range of offsets, read again, has the same bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from kclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from tests.spark.session import ROOT, WORKERS, spark_session

PARTITIONS = 4
BATCH = 5_000
_LIMIT = 600.0


def drive(bootstrap: str, topic: str, folder: Path) -> None:
    """The driver: it reads until it is killed, or until a file says to stop."""
    spark = spark_session(config=WORKERS, failures=10)

    def keep(batch: Any, number: int) -> None:
        # A batch that is repeated replaces itself: its folder has the number.
        batch.write.mode("overwrite").parquet(str(folder / "batches" / str(number)))

    reader = spark.readStream.format("kclient").option("kafka.bootstrap.servers", bootstrap)
    frame = reader.options(
        subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=str(BATCH)
    ).load()
    query = (
        frame.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    while not (folder / "stop").exists() and query.isActive:
        time.sleep(0.1)
    failed = query.exception()
    query.stop()
    spark.stop()
    if failed is not None:
        raise SystemExit(str(failed))


async def fill(bootstrap: str, topic: str, records: int) -> None:
    """Write the records, each with its number."""
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, partitions=PARTITIONS)])
    async with Producer(bootstrap, compression="lz4") as producer:
        await producer.send_arrow(
            topic,
            pyarrow.table(
                {
                    "value": pyarrow.array([b"record-%d" % n for n in range(records)]),
                    "partition": pyarrow.array([n % PARTITIONS for n in range(records)]),
                }
            ),
        )


def start(arguments: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """Start a driver, in a process group of its own."""
    log = (folder / "driver.log").open("ab")
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spark.kills", *arguments, "--drive", str(folder)],
        cwd=ROOT, stdout=log, stderr=log, start_new_session=True,
    )  # fmt: skip


def workers(driver: int) -> list[int]:
    """Python workers of tasks: they are forked from a daemon, which descends from the driver."""
    parents: dict[int, int] = {}
    commands: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parents[int(entry.name)] = int(
                    (entry / "stat").read_text().rpartition(")")[2].split()[1]
                )
                commands[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
            except (OSError, IndexError):
                continue

    def descends(pid: int) -> bool:
        while pid in parents:
            if pid == driver:
                return True
            pid = parents[pid]
        return False

    daemons = {
        pid
        for pid, command in commands.items()
        if "pyspark.daemon" in command and "pyspark.worker" in command and descends(pid)
    }
    return [pid for pid in daemons if parents.get(pid) in daemons]


def finished(folder: Path) -> int:
    """Number of batches that Spark has finished."""
    commits = folder / "checkpoint" / "commits"
    return sum(1 for file in commits.glob("*") if file.name.isdecimal()) if commits.exists() else 0


def torment(driver: Any, arguments: list[str], folder: Path, batches: int, kills: int,
            restarts: int, rng: random.Random) -> tuple[int, int]:  # fmt: skip
    """Kill, as long as batches come; return the number of kills and of restarts."""
    killed = restarted = 0
    deadline = time.monotonic() + _LIMIT
    while finished(folder) < batches:
        if time.monotonic() > deadline:
            raise SystemExit(f"only {finished(folder)} of {batches} batches came")
        time.sleep(rng.uniform(0.05, 0.6))
        done = finished(folder)
        if driver[0].poll() is not None:
            raise SystemExit(f"the driver ended: {(folder / 'driver.log').read_text()[-3000:]}")
        if restarted < restarts and done >= batches * (restarted + 1) // (restarts + 1):
            os.killpg(driver[0].pid, signal.SIGKILL)
            driver[0].wait()
            driver[0] = start(arguments, folder)
            restarted += 1
        elif killed < kills and done >= batches * killed // (kills + 1):
            found = workers(driver[0].pid)
            if found:
                os.kill(rng.choice(found), signal.SIGKILL)
                killed += 1
    return killed, restarted


def check(bootstrap: str, topic: str, folder: Path, records: int) -> list[str]:
    """What is wrong with the outcome."""
    wrong: list[str] = []
    seen: dict[tuple[int, int], bytes] = {}
    for batch in sorted((folder / "batches").iterdir(), key=lambda one: int(one.name)):
        rows = pyarrow.parquet.read_table(batch, columns=["partition", "offset", "value"])
        for row in rows.to_pylist():
            key = row["partition"], row["offset"]
            if key in seen:
                wrong.append(f"doubled: {key}")
            seen[key] = row["value"]
        ends = json.loads(
            (folder / "checkpoint" / "offsets" / batch.name).read_text().splitlines()[2]
        )["topics"][topic]["partitions"]
        late = [r for r in rows.to_pylist() if r["offset"] >= ends[str(r["partition"])]]
        wrong += [f"behind the end of batch {batch.name}: {row}" for row in late[:3]]
    if len(seen) != records:
        wrong.append(f"{records - len(seen)} records are lost")
    expected = asyncio.run(_digest(bootstrap, topic))
    found = hashlib.sha256()
    for key in sorted(seen):
        found.update(repr((key, seen[key])).encode())
    if found.hexdigest() != expected:
        wrong.append("the bytes differ from those in the log")
    return wrong


async def _digest(bootstrap: str, topic: str) -> str:
    rows: list[tuple[tuple[int, int], bytes]] = []
    async with Consumer(bootstrap) as consumer:
        keys = [TopicPartition(topic, index) for index in range(PARTITIONS)]
        consumer.assign(keys)
        consumer.seek_to_beginning(*keys)
        ends = await consumer.end_offsets(keys)
        while (batch := await consumer.poll_arrow(until=ends, timeout=10.0)).num_rows:
            rows += [
                ((r["partition"], r["offset"]), r["value"])
                for r in batch.select(["partition", "offset", "value"]).to_pylist()
            ]
    digest = hashlib.sha256()
    for row in sorted(rows):
        digest.update(repr(row).encode())
    return digest.hexdigest()


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bootstrap")
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--restarts", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--topic")
    parser.add_argument("--drive", type=Path)
    given = parser.parse_args()
    if given.drive is not None:
        drive(given.bootstrap, given.topic, given.drive)
        return 0
    topic = f"kills-{secrets.token_hex(4)}"
    asyncio.run(fill(given.bootstrap, topic, given.records))
    with tempfile.TemporaryDirectory(prefix="spark-kills-") as name:
        folder = Path(name)
        arguments = [given.bootstrap, "--topic", topic]
        driver = [start(arguments, folder)]
        try:
            killed, restarted = torment(
                driver, arguments, folder, given.records // BATCH, given.kills, given.restarts,
                random.Random(given.seed),
            )  # fmt: skip
            (folder / "stop").touch()
            driver[0].wait(120)
        finally:
            if driver[0].poll() is None:
                os.killpg(driver[0].pid, signal.SIGKILL)
        wrong = check(given.bootstrap, topic, folder, given.records)
    print(
        f"{given.records} records, {killed} workers killed, {restarted} drivers restarted: "
        f"{len(wrong)} wrong"
    )
    print("\n".join(wrong[:10]))
    return int(bool(wrong) or killed < given.kills or restarted < given.restarts)


if __name__ == "__main__":
    sys.exit(main())
