"""For long runs with coverage: response frames, through a connection and decoded directly.

    python -m tests.fuzz.atheris_frames CORPUS [-max_total_time=3600] [-rss_limit_mb=1024]

An input is two bytes that choose the API and version, then what follows the correlation id in a
frame. The invariants are those of ``frames``' mutants; Fetch responses go on into a
consumer's buffer with both builds, Metadata into a view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache


@cache
def make() -> Callable[[bytes], None]:
    """The entry; imports what it needs only now, so that it can be instrumented."""
    from tests.fuzz.fetches import FETCH, Fetches, fetch_seeds
    from tests.fuzz.frames import Answer, Frames
    from tests.fuzz.seeds import response_seeds
    from tests.fuzz.slices import METADATA, Slices
    from tests.fuzz.targets import Mutant

    seeds = [seeds[0] for seeds in response_seeds()]
    frames, others = Frames(), {FETCH: Fetches(), METADATA: Slices()}
    fetches = {seed.version: seed for seed in fetch_seeds()}

    def one_input(data: bytes) -> None:
        if len(data) < 2:
            return
        seed = seeds[int.from_bytes(data[:2], "big") % len(seeds)]
        body = bytes(data[2:])
        mutant = Mutant("atheris", True, body, "input", Answer(seed, 4 + len(body), 0, 1))
        frames.judge(mutant)
        if seed.key == FETCH:
            seed = fetches[seed.version]
        if seed.key in others:
            others[seed.key].judge(mutant._replace(extra=Answer(seed, 4 + len(body), 0, 1)))

    return one_input


def one_input(data: bytes) -> None:
    """Read one input. Raises what must not happen."""
    make()(data)


def corpus() -> Iterator[bytes]:
    """A sound response of each API and version, and Fetch responses with records."""
    from tests.fuzz.fetches import FETCH, fetch_seeds
    from tests.fuzz.seeds import response_seeds

    numbers: dict[tuple[int, int], bytes] = {}
    for number, (seed, *_) in enumerate(response_seeds()):
        head = seed.header.raw if seed.header is not None else b""
        numbers[seed.key, seed.version] = number.to_bytes(2, "big") + head
        yield numbers[seed.key, seed.version] + seed.root.raw
    for seed in fetch_seeds():
        yield numbers[FETCH, seed.version] + seed.root.raw


def main() -> None:
    """Run it under atheris."""
    from tests.fuzz.coverage_guided import fuzz

    fuzz(make, corpus())


if __name__ == "__main__":
    main()
