"""Dense and hostile responses of every API: work and memory grow with the bytes, and no faster.

The two arrays of each that cost most for their bytes, full of the smallest elements; sound, and
with one byte missing at the end, so that the decoder has to locate the fault. Work is counted in
byte code instructions, which are the same on every machine.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from kclient.errors import ProtocolError
from kclient.protocol import api_versions
from tests.fuzz.seeds import Seed, response_seeds
from tests.fuzz.shape import Edits

SMALL, LARGE = 1_500, 5_000
"""Bytes of the bodies whose instructions are counted."""
INSTRUCTIONS_PER_BYTE = 100
GROWTH = 1.35
"""Instructions per byte of the large body over those of the small one, at most."""
MEASURED = 32 << 10
PER_BYTE = 64
ONCE = 64 << 10
NEWEST = [
    seeds[0]
    for seeds in response_seeds()
    if seeds[0].version == api_versions.BY_KEY[seeds[0].key].max_version
]


def dense(seed: Seed, size: int) -> Iterator[bytes]:
    """Bodies of about that size, each with one array full of its smallest element."""
    smallest = []
    for part in seed.parts.get("filled", ()):
        child = min(part.children or (), key=lambda one: len(one.raw))
        if child.raw:
            smallest.append((len(child.raw), len(smallest), part, child))
    for width, _, part, child in sorted(smallest)[:2]:
        edits = Edits(repair=True)
        edits.rearrange(part, [child] * (size // width))
        yield edits.render(seed.root)


def read(seed: Seed, body: bytes) -> None:
    """Decode and forget."""
    try:
        api_versions.request_class(seed.key).RESPONSE.decode(body, seed.version)
    except ProtocolError:
        return


def instructions(call: Callable[[], None]) -> int:
    """How many byte code instructions a call takes."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("seed", NEWEST, ids=lambda seed: api_versions.BY_KEY[seed.key].name)
def test_the_work_for_a_byte_is_bounded(seed: Seed) -> None:
    for small, large in zip(dense(seed, SMALL), dense(seed, LARGE), strict=True):
        for cut in (0, 1):
            little, much = small[: len(small) - cut], large[: len(large) - cut]
            first = instructions(lambda body=little: read(seed, body)) / len(little)  # type: ignore[misc]
            then = instructions(lambda body=much: read(seed, body)) / len(much)  # type: ignore[misc]
            assert then <= INSTRUCTIONS_PER_BYTE
            assert then <= GROWTH * first


@pytest.mark.parametrize("seed", NEWEST, ids=lambda seed: api_versions.BY_KEY[seed.key].name)
def test_the_memory_for_a_byte_is_bounded(seed: Seed) -> None:
    for body in dense(seed, MEASURED):
        for cut in (0, 1):
            data = body[: len(body) - cut]
            tracemalloc.start()
            try:
                read(seed, data)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert peak <= PER_BYTE * len(data) + ONCE
