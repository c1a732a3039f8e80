"""One process of the fuzzer: judges a run of mutants of one target, within limits.

Run as ``python -m tests.fuzz.portion TARGET SEED FIRST COUNT SCRATCH``. The last line of its output
is the tally as JSON. A mutant that breaks something ends it with the seed, the number, the bytes
and the command that repeats it; one that ends the process itself (a segmentation fault, no memory,
no end) is known by the number in SCRATCH. With COUNT 1 and no SCRATCH it repeats one.
"""

from __future__ import annotations

import faulthandler
import mmap
import resource
import signal
import struct
import sys
import time
import traceback
import tracemalloc
from pathlib import Path

from tests.fuzz.tally import Tally
from tests.fuzz.targets import Broken, Mutant, Target, Verdict, source_of, target

HEADROOM_BYTES = 256 << 20
"""Address space that the process may take over what it has when it begins."""
CPU_LIMIT = 2.0
"""Seconds of CPU after which a mutant counts as hung; usual ones take a thousandth of it."""
TRACED_EVERY = 8
PER_BYTE = 64
ONCE = 1 << 20
"""Bytes of memory for each byte of a mutant, and besides."""

_NUMBER = struct.Struct(">q")


def hanging(*_: object) -> None:
    """The handler of SIGVTALRM."""
    raise Broken(f"no end after {CPU_LIMIT} s of CPU")


def limit_memory() -> None:
    """Limit memory, so that an allocation of a false size fails without harming the machine."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + HEADROOM_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def traced(target: Target, mutant: Mutant) -> Verdict:
    """Judge it while its memory is measured."""
    tracemalloc.start()
    try:
        verdict = target.judge(mutant)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    allowed = PER_BYTE * len(mutant.data) + ONCE
    if peak > allowed:
        raise Broken(f"{peak} bytes of memory for {len(mutant.data)}, allowed are {allowed}")
    return verdict


def run(name: str, seed: int, first: int, count: int, scratch: Path | None) -> Tally:
    """Judge ``count`` mutants."""
    faulthandler.enable()
    aim = target(name)
    tally = Tally()
    aim.judge(aim.mutant(source_of(seed, first)))  # what is made once is not the first one's
    limit_memory()
    signal.signal(signal.SIGVTALRM, hanging)
    file = (scratch or Path("/dev/null")).open("w+b")
    at_work = None
    if scratch is not None:
        file.truncate(_NUMBER.size)
        at_work = mmap.mmap(file.fileno(), _NUMBER.size)
    for number in range(first, first + count):
        if at_work is not None:
            _NUMBER.pack_into(at_work, 0, number)
        mutant = aim.mutant(source_of(seed, number))
        signal.setitimer(signal.ITIMER_VIRTUAL, CPU_LIMIT)
        try:
            if aim.traced and number % TRACED_EVERY == 0:
                verdict = traced(aim, mutant)
            else:
                verdict = aim.judge(mutant)
        except Exception:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            sys.stdout.write(failure(name, seed, number, mutant))
            sys.exit(1)
        tally.add(name, mutant, verdict)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    file.close()
    return tally


def failure(name: str, seed: int, number: int, mutant: Mutant) -> str:
    """The report on a mutant that broke something."""
    return (
        f"{traceback.format_exc()}\n"
        f"target {name}, seed {seed}, mutant {number}: {mutant.operator} "
        f"({'repaired' if mutant.repaired else 'as it is'}) of {mutant.about}\n"
        f"{mutant.data.hex()}\n"
        f"to repeat it: python -m tests.fuzz.portion {name} {seed} {number} 1\n"
    )


def main(name: str, seed: str, first: str, count: str, scratch: str | None = None) -> None:
    """Run a portion and print its tally."""
    where = None if scratch is None else Path(scratch)
    begun = time.process_time()
    tally = run(name, int(seed), int(first), int(count), where)
    tally.cpu_seconds = time.process_time() - begun
    sys.stdout.write(f"\n{tally.to_json()}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
