"""What a session ran on: versions, machine, load. Goes into the JSON and above the report."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

from benchmarks.job import Job
from benchmarks.tally import check_cost
from kclient.record import IMPLEMENTATION

PACKAGES = (
    "kclient",
    "aiokafka",
    "kafka-python",
    "confluent-kafka",
    "uvloop",
    "pyarrow",
    "numpy",
    "lz4",
    "python-snappy",
    "cramjam",
    "zstandard",
    "crc32c",
)


def about(broker_version: str) -> dict[str, Any]:
    """Everything that a reader needs to judge the figures."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    try:
        import confluent_kafka

        versions["librdkafka"] = confluent_kafka.libversion()[0]
    except ImportError:
        pass
    return {
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "broker": broker_version,
        "kclient.record.IMPLEMENTATION": IMPLEMENTATION,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "check_us": check_cost(Job("", "", 0)),
        "versions": versions,
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
