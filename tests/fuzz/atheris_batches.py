"""For long runs with coverage: record batches, read with both builds.

    python -m tests.fuzz.atheris_batches CORPUS [-max_total_time=3600] [-rss_limit_mb=1024]

An input is a byte that selects whether lengths and CRCs are repaired (a fuzzer finds no CRCs by
itself), then the record bytes of a fetch. The invariants are those of ``differ``'s mutants. Only
the pure build is instrumented, so it guides the search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache


@cache
def make() -> Callable[[bytes], None]:
    """The entry; imports what it needs only now, so that it can be instrumented."""
    from tests.fuzz.differ import Batches
    from tests.fuzz.mutants import repaired
    from tests.fuzz.targets import Mutant

    batches = Batches()

    def one_input(data: bytes) -> None:
        if not data:
            return
        records = bytearray(data[1:])
        if data[0] & 1:
            repaired(records)
        batches.judge(Mutant("atheris", bool(data[0] & 1), bytes(records), "input", data[0]))

    return one_input


def one_input(data: bytes) -> None:
    """Read one input. Raises what must not happen."""
    make()(data)


def corpus() -> Iterator[bytes]:
    """What brokers stored, and our own batches."""
    from tests.fuzz.mutants import seeds

    for seed in seeds():
        yield b"\x01" + seed


def main() -> None:
    """Run it under atheris."""
    from tests.fuzz.coverage_guided import fuzz

    fuzz(make, corpus())


if __name__ == "__main__":
    main()
