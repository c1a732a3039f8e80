"""The process that is counted: ``python -m tests.budgets.workload MODE PATH...``.

In mode ``marked`` it runs under callgrind, which writes a part of its profile whenever ``getpgrp``
is called: each path gives four parts (between, smaller run, between, larger run), and the id of
its process is printed. In mode ``blocks`` it runs alone and prints how many blocks of memory the
results keep. Started by ``machine`` only.

Each path has a process of its own, forked when everything is imported: how well the interpreter's
code is specialized depends on what ran before.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median_low
from typing import Any

from tests.budgets.hot_path import FACTOR, HotPath
from tests.budgets.still import sow, stop_clocks

PAIRS = 9
"""Pairs of runs whose retained memory is looked at; it takes a few until all caches are full."""
PROJECT = Path(__file__).resolve().parents[2]


def warm_up(path: HotPath) -> None:
    """Let caches fill: the allocator takes memory, and the interpreter specializes its code.

    It takes thousands of rounds until that has settled everywhere.
    """
    with path.prepare(FACTOR * path.count) as step:
        step()


def run_marked(path: HotPath) -> int:
    """Run it twice, between two marks each; gives the id of this process."""
    warm_up(path)
    for count in (path.count, FACTOR * path.count):
        with path.prepare(count) as step:
            # The collector starts from zero and ignores older objects; its thresholds are the
            # default ones.
            gc.collect()
            gc.freeze()
            os.getpgrp()
            kept = step()
            os.getpgrp()
            del kept
    return os.getpid()


def blocks_kept(path: HotPath) -> tuple[int, int]:
    """Blocks of memory that are in use after each run and were not before.

    The median of a few runs of either size: what a cache takes, it takes once.
    """
    warm_up(path)
    pairs = [
        (_blocks_of_a_run(path, path.count), _blocks_of_a_run(path, FACTOR * path.count))
        for _ in range(PAIRS)
    ]
    smaller, larger = zip(*pairs, strict=True)
    return median_low(smaller), median_low(larger)


def _blocks_of_a_run(path: HotPath, count: int) -> int:
    with path.prepare(count) as step:
        gc.collect()
        before = sys.getallocatedblocks()
        kept = step()
        gc.collect()
        more = sys.getallocatedblocks() - before
        del kept
    return more


def in_a_child(work: Callable[[HotPath], Any], path: HotPath) -> Any:
    """What ``work`` gives for a path in a process forked from this one; numbers and lists of them.

    Raises:
        SystemExit: It failed there.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(writing, json.dumps(work(path)).encode())
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as answer:
        said = answer.read()
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
        sys.exit(f"{path.name} failed")
    return json.loads(said)


def main(arguments: Sequence[str]) -> None:
    """Run from a command line."""
    mode, *names = arguments
    stop_clocks()
    sow()
    import kclient  # not earlier: it takes the clocks by name
    from tests.budgets.paths import PATHS

    if PROJECT not in Path(kclient.__file__).resolve().parents:
        sys.exit(f"kclient is imported from {kclient.__file__}, not from {PROJECT}")
    paths = {path.name: path for path in PATHS}
    work: Callable[[HotPath], Any] = run_marked if mode == "marked" else blocks_kept
    print(json.dumps({name: in_a_child(work, paths[name]) for name in names}))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
