"""A Spark session of the tests: local, quiet, with the Python that runs them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
WORKERS = {"spark.python.unix.domain.socket.enabled": "true"}
"""As docs/spark.md has it: over TCP each task of Python waits 40 ms for a delayed ACK."""


def spark_session(
    jars: str | None = None, config: Mapping[str, str] | None = None, *, failures: int = 1
) -> Any:
    """Start it."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    builder = SparkSession.builder.master(f"local[2,{failures}]")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "6g",
        **({"spark.jars": jars} if jars else {}),
        **(config or {}),
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
