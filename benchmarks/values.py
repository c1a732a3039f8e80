"""The records that all clients write and read: seeded, so that writer and reader have the same.

Values are pieces of a text of JSON lines, which codecs compress to a half or a third. They come
from a pool of about a mebibyte, used cyclically; a batch hardly has one twice. Keys and headers are
used cyclically as well. A topic's expected check sum follows from its number of records.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator, Sequence

from benchmarks.job import Job

POOL_BYTES = 1024 * 1024
SEED = 20_061
KEYS = 10_007
"""Different keys; a prime, so that their cycle differs from that of the values."""
PER_CHECK = 1_000
"""Values that a record-by-record loop collects before it checks them."""
HEADERS = [("trace", b"00f067aa0ba902b7"), ("source", b"benchmarks")]

_AIRPORTS = "EWR IAH JFK MIA LGA ATL ORD FLL IAD MCO PBI TPA LAX SFO DFW BOS LAS SEA".split()
_CARRIERS = "UA AA B6 DL EV MQ US WN VX FL AS 9E F9 HA YV OO".split()
Row = tuple[str, bytes, "bytes | None", "list[tuple[str, bytes]] | None"]


def _line(rng: random.Random, number: int) -> bytes:
    origin, destination = rng.choice(_AIRPORTS), rng.choice(_AIRPORTS)
    tail = f"N{rng.randrange(10_000, 99_999)}"
    return (
        f'{{"id":{number},"carrier":"{rng.choice(_CARRIERS)}","tail":"{tail}",'
        f'"origin":"{origin}","dest":"{destination}","delay":{rng.randrange(-20, 180)},'
        f'"token":"{rng.getrandbits(160):040x}"}}\n'
    ).encode()


@functools.cache
def pool(size: int) -> list[bytes]:
    """Values of ``size`` bytes each."""
    rng = random.Random(SEED)
    count = max(16, POOL_BYTES // size)
    lines, length, number = [], 0, 0
    while length < count * size:
        lines.append(_line(rng, number))
        length += len(lines[-1])
        number += 1
    text = b"".join(lines)
    return [text[at : at + size] for at in range(0, count * size, size)]


@functools.cache
def keys() -> list[bytes]:
    return [b"N%05d" % number for number in range(KEYS)]


def values(size: int, count: int) -> Iterator[bytes]:
    """Return ``count`` values, from the start of the pool."""
    return itertools.islice(itertools.cycle(pool(size)), count)


def windows(size: int, count: int, window: int) -> Iterator[list[bytes]]:
    """Return the same in lists of ``window``."""
    source = values(size, count)
    while chunk := list(itertools.islice(source, window)):
        yield chunk


def shares(count: int, tasks: int) -> list[range]:
    """Distribute ``count`` record numbers among tasks; the first tasks take the remainder."""
    share, rest = divmod(count, tasks)
    ends = [share * task + min(task, rest) for task in range(tasks + 1)]
    return [range(a, b) for a, b in itertools.pairwise(ends) if b > a]


def rows(job: Job, chunk: Sequence[bytes], first: int = 0) -> Iterator[Row]:
    """Return topic, value, key and headers of records; ``first`` is the first one's number."""
    topics = itertools.islice(itertools.cycle(job.topics), first % len(job.topics), None)
    names: Iterator[bytes | None] = itertools.repeat(None)
    if job.keyed:
        names = itertools.islice(itertools.cycle(keys()), first % KEYS, None)
    return zip(topics, chunk, names, itertools.repeat(HEADERS if job.headers else None))


def checksum(size: int, count: int) -> int:
    """Return the sum of the values as little-endian 32-bit words modulo 2**32, as in ``Tally``."""
    import numpy  # readers only; a tenth of a second of import

    found = pool(size)
    words = [int(numpy.frombuffer(value, "<u4").sum(dtype=numpy.uint32)) for value in found]
    rounds, rest = divmod(count, len(found))
    return (rounds * sum(words) + sum(words[:rest])) % 2**32
