"""Decompression bombs end at the cap: 512 MiB of zeros in a few KiB to a few MiB, each in a process
of its own, whose memory is measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kclient.record import DEFAULT_CAP
from tests.unit.record.bomb import PAYLOADS

PROJECT = Path(__file__).parents[3]
ALLOWANCE = 32 * 1024 * 1024
"""Bytes of growth that are allowed in addition to the cap."""
MOST_SECONDS = 2.0


@pytest.mark.parametrize(("codec", "kind"), list(PAYLOADS))
def test_memory_stays_at_the_cap(codec: str, kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.record.bomb", codec, kind],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=60.0,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outcome, seconds, grown = done.stdout.split()
    assert outcome == "DecompressionFailed"
    assert int(grown) <= DEFAULT_CAP + ALLOWANCE
    assert float(seconds) <= MOST_SECONDS
