"""A stopped process is detected as a standstill, a process whose loop is blocked isn't."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

from tests.support.standstill import Standstill

_STOPPED = 1.0
_CHILD = """
import sys, time
from tests.support.standstill import Standstill
with Standstill() as standstill:
    print("up", flush=True)
    sys.stdin.readline()
print(standstill.longest)
"""


def test_a_process_that_was_stopped_knows_for_how_long() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        assert child.stdout.readline() == "up\n"
        child.send_signal(signal.SIGSTOP)
        time.sleep(_STOPPED)
        child.send_signal(signal.SIGCONT)
        child.stdin.write("\n")
        child.stdin.close()
        assert float(child.stdout.read()) > _STOPPED / 2


def test_a_thread_that_computes_or_waits_is_no_standstill() -> None:
    with Standstill() as standstill:
        time.sleep(0.3)
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            pass
    assert standstill.longest < 0.3
