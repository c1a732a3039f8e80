"""One frame on its way through the proxy, and what the rules do to it.

``session.py`` makes a ``Passage`` of each frame where there are rules at all, the rules of
``rules.py`` read it and set what is to happen, ``pipe.py`` does it. Messages are decoded on first
access, never before.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from kclient.protocol import api_versions
from kclient.protocol.headers import (
    API_VERSIONS_KEY,
    decode_request_header,
    decode_response_header,
    encode_request,
)
from kclient.protocol.message import Message, Request, Response
from kclient.protocol.primitives import read_uvarint
from tests.support.response_frames import encode_response

if TYPE_CHECKING:
    from tests.faults.pipe import Wait
    from tests.faults.session import Session

Side: TypeAlias = Literal["request", "answer"]
"""Which way: from the client to the broker, or back."""
Ending: TypeAlias = Literal["cut", "reset", "silent"]
"""What may follow a frame: both sides closed, closed with RST, or nothing in that direction."""

PRODUCE, FETCH, METADATA = 0, 1, 3

_START = struct.Struct(">hhih")
_SHORT = struct.Struct(">h")
_UNSUPPORTED_VERSION = 35


class _Parts(NamedTuple):
    """A message's attributes for its topics, their names, their partitions and the numbers."""

    topics: str
    name: str
    parts: str
    number: str


_PARTS: dict[tuple[int | None, Side], _Parts] = {
    (PRODUCE, "request"): _Parts("topic_data", "name", "partition_data", "index"),
    (PRODUCE, "answer"): _Parts("responses", "name", "partition_responses", "index"),
    (FETCH, "request"): _Parts("topics", "topic", "partitions", "partition"),
    (FETCH, "answer"): _Parts("responses", "topic", "partitions", "partition_index"),
}


class Asked:
    """One request.

    Attributes:
        api: Kafka's number of it.
        version: Its version.
        correlation_id: The response has the same.
        frame: All of it, its size included.
        open: It was passed on, and its response has not passed back.
        own: A rule's response to a request that is not passed on, as a frame.
    """

    __slots__ = ("_message", "api", "correlation_id", "frame", "open", "own", "version")

    def __init__(self, frame: bytes) -> None:
        self.api, self.version, self.correlation_id, _ = _START.unpack_from(frame, 4)
        self.frame = frame
        self.open = False
        self.own: bytes | None = None
        self._message: Request | None = None

    @property
    def client_id(self) -> str | None:
        """The client id in the request's header."""
        return decode_request_header(self.frame[4:]).client_id

    @property
    def message(self) -> Any:
        """The request, decoded."""
        if self._message is None:
            body = self.frame[4:]
            start = decode_request_header(body).body_offset
            self._message = api_versions.request_class(self.api).decode(body, self.version, start)
        return self._message

    @property
    def answered(self) -> bool:
        """Whether the broker responds at all: not to a Produce with acks=0."""
        if self.api != PRODUCE:
            return True
        (size,) = _SHORT.unpack_from(self.frame, 12)
        pos = 14 + max(size, 0)
        if self.version >= 9:
            pos += 1  # the count of tagged fields; no client sends any in a header
            length, pos = read_uvarint(self.frame, pos, len(self.frame))
            pos += max(length - 1, 0)
        elif self.version >= 3:
            (length,) = _SHORT.unpack_from(self.frame, pos)
            pos += 2 + max(length, 0)
        (acks,) = _SHORT.unpack_from(self.frame, pos)
        return bool(acks)

    def with_message(self, message: Request) -> bytes:
        """A frame like this one with another message."""
        return encode_request(message, self.version, self.correlation_id, self.client_id)

    def decode_answer(self, frame: bytes) -> Any:
        """The response in a frame, decoded."""
        body = frame[4:]
        _, start = decode_response_header(body, self.api, self.version)
        version = self.version
        if self.api == API_VERSIONS_KEY and body[4:6] == _SHORT.pack(_UNSUPPORTED_VERSION):
            version = 0  # KIP-511: a broker that lacks the version responds in version 0
        return api_versions.request_class(self.api).RESPONSE.decode(body, version, start)

    def encode_answer(self, message: Response | bytes) -> bytes:
        """A response frame for this request; bytes are what follows the size field."""
        if isinstance(message, bytes):
            return struct.pack(">i", len(message)) + message
        return encode_response(message, self.version, self.correlation_id)


class Passage:
    """One frame, or record of TLS, that passes.

    Attributes:
        session: The connection that it passes on.
        on: Which way it goes.
        asked: The request that it is or responds to; None in opaque mode.
        data: Its bytes, the size field included; empty: it doesn't pass at all.
        waits: Conditions to wait for before it passes.
        copies: How often it passes.
        limit: How many bytes of it pass at most; None means all.
        ending: What follows behind that; None means nothing.
        pace: Bytes that pass at once and seconds between; None means all at once.
    """

    __slots__ = (
        "_answer",
        "asked",
        "copies",
        "data",
        "ending",
        "limit",
        "on",
        "pace",
        "session",
        "waits",
    )

    def __init__(self, session: Session, on: Side, asked: Asked | None, data: bytes) -> None:
        self.session = session
        self.on = on
        self.asked = asked
        self.data = data
        self.waits: list[Wait] = []
        self.copies = 1
        self.limit: int | None = None
        self.ending: Ending | None = None
        self.pace: tuple[int, float] | None = None
        self._answer: Response | None = None

    @property
    def api(self) -> int | None:
        """Kafka's number of the API; None in opaque mode."""
        return None if self.asked is None else self.asked.api

    @property
    def request(self) -> Any:
        """The request, decoded: this one, or the one that this is the response to."""
        assert self.asked is not None, "opaque bytes are no request"
        return self.asked.message

    @property
    def answer(self) -> Any:
        """The response, decoded, with the proxy's addresses in it."""
        assert self.asked is not None and self.on == "answer", "this is no answer"
        if self._answer is None:
            self._answer = self.asked.decode_answer(self.data)
        return self._answer

    @property
    def message(self) -> Any:
        """The request or the response, whichever passes here."""
        return self.request if self.on == "request" else self.answer

    def parts(self) -> list[tuple[str | None, int, Any]]:
        """What a Produce or Fetch has of each partition: (topic, partition, that part of it).

        In versions that identify topics by id, a topic is None until a Metadata response named it.
        """
        message, names = self.message, self.session.topic_names
        topics = _PARTS[self.api, self.on]
        return [
            (
                getattr(topic, topics.name) or names.get(topic.topic_id),
                getattr(part, topics.number),
                part,
            )
            for topic in getattr(message, topics.topics)
            for part in getattr(topic, topics.parts)
        ]

    def partitions(self) -> set[tuple[str | None, int]]:
        """The partitions that a Produce or Fetch names; an incremental Fetch: what changed."""
        return {(name, index) for name, index, _ in self.parts()}

    def replace(self, message: Message | bytes) -> None:
        """Let another message pass; bytes are all that follows the size field."""
        assert self.asked is not None, "opaque bytes are no message"
        if isinstance(message, bytes):
            self.data = struct.pack(">i", len(message)) + message
        elif isinstance(message, Request):
            self.data = self.asked.with_message(message)
            self.asked._message = message
        else:
            assert isinstance(message, Response)
            self.data = self.asked.encode_answer(message)
            self._answer = message

    def end(self, ending: Ending, at: int | None = None) -> None:
        """Let something follow behind ``at`` bytes of it, or behind all of it."""
        self.limit = at
        self.ending = ending
