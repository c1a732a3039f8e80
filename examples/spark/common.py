"""What the pipelines share: their options, a cluster in this process, and a Spark session."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from kclient.testing import Cluster, ThreadedCluster


def options(about: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument(
        "--bootstrap", help="host:port of a broker; default: a cluster in this process"
    )
    parser.add_argument("--limit", type=int, help="only so many flights")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the results")
    found = parser.parse_args()
    found.out.mkdir(parents=True, exist_ok=True)
    return found


@contextlib.contextmanager
def brokers(bootstrap: str | None) -> Iterator[str]:
    if bootstrap is not None:
        yield bootstrap
    else:
        with ThreadedCluster(Cluster(brokers=3)) as cluster:
            yield cluster.bootstrap


@contextlib.contextmanager
def spark(name: str) -> Iterator[SparkSession]:
    # Spark's workers are other processes: without this they run whatever python3 is in the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = (
        SparkSession.builder.appName(name)
        .master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        # Over TCP each task in Python waits 40 ms; Spark 4.0 ignores this.
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def topics(session: SparkSession, bootstrap: str, *names: str, **more: str) -> DataFrame:
    """The records of topics, all that are there now."""
    reader = session.read.format("kclient").option("kafka.bootstrap.servers", bootstrap)
    return reader.options(subscribe=",".join(names), **more).load()
