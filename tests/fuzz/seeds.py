"""What frames of mutants are made of: sound responses of every API and version, as trees.

Two of each: the golden one that Kafka's own classes wrote (``goldens.txt``), and one of our own
classes with most fields set. Targets that need more special ones make ``Seed`` themselves.
"""

from __future__ import annotations

import base64
import random
from functools import cache
from pathlib import Path

from kclient.protocol import api_versions
from kclient.protocol.headers import API_VERSIONS_KEY
from kclient.protocol.message import Message
from tests.fuzz.shape import Part, parse, parse_tags
from tests.unit.protocol.random_messages import random_message

GOLDENS = Path(__file__).with_name("goldens.txt")
SMALL_BYTES = 900
_TRIES = 12


class Seed:
    """One sound message, cut into parts.

    Attributes:
        key: Of its API.
        version: Of the API.
        root: The body.
        header: The tagged fields of the header; None where it has none.
        parts: All parts of both, by kind.
    """

    __slots__ = ("header", "key", "parts", "root", "version")

    def __init__(
        self, key: int, version: int, message: type[Message], body: bytes, *, header: bool
    ) -> None:
        self.key = key
        self.version = version
        self.root = parse(message, body, version)
        self.header = parse_tags(b"\0") if header else None
        self.parts: dict[str, list[Part]] = {}
        for root in (self.root, self.header):
            for part in root.walk() if root is not None else ():
                for kind in _kinds(part):
                    self.parts.setdefault(kind, []).append(part)


def _kinds(part: Part) -> list[str]:
    kinds = [part.kind]
    if part.prefix:
        kinds.append("prefixed")
    if part.kind == "blob":
        kinds.append("records" if part.type == "records" else "text or bytes")
    if part.kind == "array" and part.children:
        kinds.append("filled")
    if part.prefix and part.code in ("compact", "plain"):
        kinds.append("varint")
    return kinds


def response_seed(key: int, version: int, body: bytes) -> Seed:
    """A response with its header."""
    tagged = key != API_VERSIONS_KEY and api_versions.is_flexible(key, version)
    return Seed(key, version, api_versions.request_class(key).RESPONSE, body, header=tagged)


def filled(rng: random.Random, message: type[Message], version: int) -> bytes:
    """A random message with most fields set, not too large."""
    made = [random_message(rng, message, version).encode(version) for _ in range(_TRIES)]
    return max((body for body in made if len(body) <= SMALL_BYTES), key=len, default=min(made))


@cache
def response_seeds() -> list[tuple[Seed, ...]]:
    """The seeds of each API and version."""
    rng = random.Random(20130101)
    found = []
    for line in GOLDENS.read_text().splitlines():
        key, version, body = line.split()
        number, spoken = int(key), int(version)
        ours = filled(rng, api_versions.request_class(number).RESPONSE, spoken)
        bodies = (base64.b64decode(body), ours)
        found.append(tuple(response_seed(number, spoken, one) for one in bodies))
    return found


def seeds_of(key: int) -> list[tuple[Seed, ...]]:
    """Those of one API."""
    return [seeds for seeds in response_seeds() if seeds[0].key == key]
