"""Java's client, in a JVM of its own: ``Transactions.java`` measures, and this reads its figures.

Its CPU includes the JVM's start and compiler, so only p50 and p99 are comparable.
"""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.clients.latency import figures
from benchmarks.job import Job, NotRun, Outcome
from benchmarks.tally import Watch

VERSION = "4.3.0"
_PROGRAM = Path(__file__).with_name("Transactions.java")
_WARM_UP = 2_000
"""Transactions before those that are measured: a JVM compiles what it runs often."""
_TIMEOUT = 600.0


def one_record(job: Job) -> Outcome:
    """Transactions of one record."""
    return _run(job, records=True)


def empty(job: Job) -> Outcome:
    """Transactions of nothing."""
    return _run(job, records=False)


def _run(job: Job, *, records: bool) -> Outcome:
    from tests.support.class_path import ToolMissing, class_path, require, require_java

    try:
        java, jars = require_java(), class_path(VERSION)
        javac = require("javac", "install a JDK (17 or newer)")
    except ToolMissing as error:
        raise NotRun(str(error)) from error
    unmeasured = max(job.warm_up, _WARM_UP)
    words = [job.topic, job.records, unmeasured, job.size, int(records)]
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as compiled:
        _output([javac, "-cp", jars, "-d", compiled, str(_PROGRAM)])
        program = [java, "-cp", os.pathsep.join((compiled, jars)), _PROGRAM.stem]
        output = _output([*program, job.bootstrap, *map(str, words)])
    times = [float(line) / 1e6 for line in output.split()]
    if len(times) != job.records:
        raise ValueError(f"{len(times)} figures of {job.records}")
    watch = Watch()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    watch.cpu = used.ru_utime + used.ru_stime
    watch.system = used.ru_stime
    watch.wall = time.perf_counter() - began
    transactions = job.records + unmeasured
    written = transactions if records else 0
    return figures(job, watch, times) | {"written": written, "transactions": transactions}


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-1_000:])
    return done.stdout
