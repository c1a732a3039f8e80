"""Columns that can't be allocated: MemoryError, and earlier rows and the builder stay usable."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHILD = """
import resource
import pyarrow
from kclient.record import BatchBuilder, read_batches
from kclient.record.columnar import ColumnBuilder

MIB = 1024 * 1024
made = BatchBuilder(8 * MIB)
for number in range(100_000):
    made.append(number, None, b"v" * 20, None)
data = made.encode()
hard = resource.getrlimit(resource.RLIMIT_AS)[1]
failed = 0
for spare in range(0, 40 * MIB, MIB):
    builder = ColumnBuilder((4 * MIB, 8 * MIB, 32 * MIB))
    (batch,) = read_batches(data)
    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + spare, hard))
    try:
        builder.add(batch, "t", 0)
        builder.to_record_batch()
    except MemoryError:
        failed += 1
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    (batch,) = read_batches(data)
    before = builder.num_rows
    while not batch.exhausted:
        assert builder.add(batch, "t", 0) > 0
    assert builder.num_rows == before + 100_000
    builder.to_record_batch()
print(failed)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's here")
def test_no_memory_for_columns_leaves_them_usable() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 5, "hardly any attempt lacked memory"
