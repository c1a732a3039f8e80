"""Stopwatch and check: every run uses them in the same way, whatever its client.

``Watch`` reads CPU of the whole process (user and system, all threads) and wall time. ``Tally``
reads every byte of every value, at 0.01 to 0.02 us per 100 bytes: pieces of up to 64 KiB are joined
and summed up as 32-bit numbers. The sum depends neither on the order of partitions nor on the size
of polls, so it is the same for all clients, also for columns.
"""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.job import Job, Outcome
from benchmarks.values import checksum, pool

PIECE = 64 * 1024
FAIR = 0.9
"""Share of a run's records that must have arrived after the first ones for a rate to be shown."""


class Watch:
    """CPU and wall time between ``start`` and ``stop``; ``lap`` moves the wall's start only.

    Records that arrived before the lap don't count in the rate. There is no rate if most records
    arrived before, or if the wait for the first took longer than all the rest: then the rest may
    have been fetched during the wait, and the rate would be that of emptying a buffer.
    """

    on_start: Callable[[], None] | None = None
    on_stop: Callable[[], None] | None = None
    """Hooks of modules that measure more than time, such as ``holds``; on the class, as entries
    create their watches themselves."""

    def __init__(self) -> None:
        self.cpu = self.wall = 0.0
        self.skipped = 0
        self.waited = self._wall = 0.0
        self.user = self.system = 0.0

    def start(self) -> None:
        if Watch.on_start is not None:
            Watch.on_start()
        else:
            # A full collection takes as long as 100,000 records. Whether one happens in a run must
            # not depend on what its warm-up left behind. Holds are measured without this.
            gc.collect()
        self._usage = resource.getrusage(resource.RUSAGE_SELF)
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def lap(self, records: int) -> None:
        """Start the wall time again, as the first records came: they don't count in the rate."""
        if not self.skipped:
            now = time.perf_counter()
            self.waited, self._wall, self.skipped = now - self._wall, now, records

    def stop(self) -> None:
        self.cpu = time.process_time() - self._cpu
        self.wall = time.perf_counter() - self._wall
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self.user = usage.ru_utime - self._usage.ru_utime
        self.system = usage.ru_stime - self._usage.ru_stime
        if Watch.on_stop is not None:
            Watch.on_stop()

    def outcome(self, records: int) -> Outcome:
        """Return figures per record; the rate is None if it would be misleading."""
        counted = records - self.skipped
        fair = counted >= FAIR * records and self.wall > self.waited
        return {
            "cpu_us": self.cpu / records * 1e6,
            "system_us": self.system / records * 1e6,
            "per_second": counted / self.wall if fair and self.wall else None,
            "cpu": self.cpu,
            "wall": self.wall,
            "records": records,
        }


class Tally:
    """Count, bytes and sum of values that were read."""

    def __init__(self, job: Job) -> None:
        self.count = self.bytes = self.sum = 0
        import numpy  # writers don't need it

        self._numpy = numpy
        self._job = job
        self._step = max(1, PIECE // job.size)

    def add(self, values: Sequence[bytes]) -> None:
        step = self._step
        for begin in range(0, len(values), step):
            self.add_bytes(b"".join(values[begin : begin + step]))
        self.count += len(values)

    def add_bytes(self, data: Any) -> None:
        words = self._numpy.frombuffer(data, "<u4")
        self.bytes += words.nbytes
        self.sum += int(words.sum(dtype=self._numpy.uint32))

    def add_column(self, column: Any) -> None:
        """Add an Arrow column of binary values without nulls, whose bytes are contiguous."""
        _, offsets, data = column.buffers()
        width = "<i8" if str(column.type).startswith("large") else "<i4"
        ends = self._numpy.frombuffer(offsets, width)
        first, last = ends[column.offset], ends[column.offset + len(column)]
        self.add_bytes(memoryview(data)[int(first) : int(last)])
        self.count += len(column)

    def check(self, records: int) -> None:
        """Raise unless exactly the topic's first ``records`` values were seen.

        Raises:
            ValueError: Count, bytes or sum differ.
        """
        job = self._job
        found = (self.count, self.bytes, self.sum % 2**32)
        wanted = (records, records * job.size, checksum(job.size, records))
        if found != wanted:
            raise ValueError(f"read (count, bytes, sum) {found}, the topic has {wanted}")


def check_cost(job: Job) -> float:
    """Return the microseconds of CPU per record that ``Tally.add`` takes, for the report."""
    values = (pool(job.size) * 2)[:2_000]
    tally, best = Tally(job), float("inf")
    for _ in range(5):
        began = time.process_time()
        tally.add(values)
        best = min(best, time.process_time() - began)
    return best / len(values) * 1e6
