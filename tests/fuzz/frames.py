"""Response frames of every API and version, through the client's real ``Connection``.

Each mutant responds to a request of its API on a usable connection, with another request behind it.
The required outcome follows from the frame's first eight bytes: a frame that is whole and has the
right correlation id costs its own request at most, and the next response is read; anything else
ends the connection with a typed error, and both requests with it. The body is also decoded
directly, by steps where there are steps, and all ways must have the same result.
"""

from __future__ import annotations

import random
import struct
from typing import NamedTuple

from kclient.errors import (
    ConnectionLost,
    InvalidFrame,
    KafkaError,
    NoCommonVersion,
    ProtocolError,
    RequestTimedOut,
)
from kclient.network.connection import Connection, ConnectionState
from kclient.network.frames import FramePool
from kclient.network.handshake import ClientInformation
from kclient.network.nodes import ConnectionKey, Lane
from kclient.network.requests import PendingRequest
from kclient.protocol import api_versions
from kclient.protocol.message import Message, Request, Response, SteppedResponse
from kclient.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from tests.fuzz import operators
from tests.fuzz.seeds import Seed, response_seeds
from tests.fuzz.targets import Broken, Mutant, Verdict
from tests.support.response_frames import encode_response
from tests.unit.protocol.random_messages import random_message

FRAME_LIMIT = 1_000_000
ASKED_AT = 1.0
SETUP, DEADLINE, LATER = 5.0, 10.0, 11.0
FRAME_DAMAGE = 0.12
"""Fraction of the mutants whose frame is spoiled, and not their message."""
POOL = FramePool()


class FrameDamage(NamedTuple):
    """The content of a frame's first eight bytes.

    Attributes:
        size: That is announced; None for that of the mutant (or, unrepaired, of the seed).
        correlation: To be added to the right correlation id.
        copies: How often it comes.
    """

    size: int | None = None
    correlation: int = 0
    copies: int = 1


class Answer(NamedTuple):
    """What a mutant is besides its bytes."""

    seed: Seed
    size: int
    correlation: int
    copies: int


def frame_damage(source: random.Random, size: int) -> tuple[str, FrameDamage]:
    """One way to spoil the first eight bytes."""
    off = source.choice((-1, 1, 3, -4, 100))
    return source.choice(
        (
            ("frame size off", FrameDamage(max(size + off, 0))),
            ("frame size huge", FrameDamage(source.choice((2**31 - 1, FRAME_LIMIT + 1, 2**24)))),
            ("frame size negative", FrameDamage(source.choice((-1, -(2**31), -2)))),
            ("frame size tiny", FrameDamage(source.choice((0, 1, 3, 4, 5)))),
            ("correlation id wrong", FrameDamage(correlation=source.choice((1, -1, 2**30)))),
            ("answer twice", FrameDamage(copies=2)),
        )
    )


def answer_mutant(source: random.Random, seed: Seed, others: list[bytes]) -> Mutant:
    """A mutant of one response, with its frame."""
    about = f"{api_versions.BY_KEY[seed.key].name} response v{seed.version}"
    head = seed.header.raw if seed.header is not None else b""
    if source.random() < FRAME_DAMAGE:
        data = head + seed.root.raw
        operator, damage = frame_damage(source, 4 + len(data))
        size = 4 + len(data) if damage.size is None else damage.size
        repaired = operator in ("correlation id wrong", "answer twice")
        extra = Answer(seed, size, damage.correlation, damage.copies)
        return Mutant(operator, repaired, data, about, extra)
    operator, repaired, head, body = operators.spoiled(source, seed, others)
    data = head + body
    stale = 4 + len(seed.root.raw) + (1 if seed.header is not None else 0)
    extra = Answer(seed, 4 + len(data) if repaired else stale, 0, 1)
    return Mutant(operator, repaired, data, about, extra)


def new_connection() -> Connection:
    """A connection that was not opened yet."""
    return Connection(
        ConnectionKey(1, Lane.GENERAL),
        "kafka:9092",
        ClientInformation("fuzz", "kclient", "1"),
        pool=POOL,
        frame_limit=FRAME_LIMIT,
        in_flight_limit=5,
    )


def deliver(connection: Connection, data: bytes, now: float) -> None:
    """Hand bytes in as a transport does."""
    view = memoryview(data)
    most = len(data) if len(data) % 4 else 7  # some arrive in many pieces
    while view and not connection.is_closed:
        with connection.buffer() as buffer:
            count = min(len(buffer), len(view), most)
            buffer[:count] = view[:count]
        view = view[count:]
        connection.received(count, now)


def usable_connection(key: int) -> Connection:
    """A connection to a broker that speaks one API, and ApiVersions."""
    api = api_versions.BY_KEY[key]
    spoken = [ApiVersion(key, api.min_version, api.max_version)]
    if key != ApiVersionsRequest.API_KEY:
        spoken.append(ApiVersion(ApiVersionsRequest.API_KEY, 0, 4))
    connection = new_connection()
    connection.opened(0.0, SETUP)
    connection.take_output()
    deliver(connection, encode_response(ApiVersionsResponse(0, spoken), 4, 0), 0.0)
    return connection


class Asked:
    """A connection with two requests on their way: that of the mutant's API, and another one."""

    def __init__(self, connection: Connection, seed: Seed, request: Request, *, raw: bool) -> None:
        self.connection = connection
        self.first = self._submit(request, seed.version, raw)
        self.second = self._submit(ApiVersionsRequest(), 0, False)
        connection.take_output()

    def _submit(self, request: Request, version: int, raw: bool) -> PendingRequest:
        pending = PendingRequest(
            type(request),
            request,
            timeout=DEADLINE,
            deadline=DEADLINE,
            max_version=version,
            raw=raw,
        )
        if not self.connection.submit(pending, ASKED_AT):
            raise Broken("a connection that is usable refused a request")
        return pending

    def outcomes(self, mutant: Mutant) -> tuple[object, object]:
        """Deliver the mutant and a good response behind it; return both requests' outcomes."""
        answer: Answer = mutant.extra
        wrong = (self.first.correlation_id + answer.correlation) & 0xFFFFFFFF
        frame = struct.pack(">iI", answer.size, wrong) + mutant.data
        good = encode_response(ApiVersionsResponse(), 0, self.second.correlation_id)
        connection = self.connection
        deliver(connection, frame * answer.copies + good, 2.0)
        connection.expire(LATER)
        said = dict(connection.take_outcomes())
        if len(said) != 2 or self.first not in said or self.second not in said:
            raise Broken(f"two requests were answered with {said}")
        return said[self.first], said[self.second]


class Frames:
    """The target; see the docstring of the file."""

    traced = True

    def __init__(self) -> None:
        self._seeds = response_seeds()
        self._others = [seeds[0].root.raw for seeds in self._seeds]
        self._connections: dict[int, Connection] = {}
        self._requests: dict[tuple[int, int], Request] = {}

    def mutant(self, source: random.Random) -> Mutant:
        """A mutant of a random API and version."""
        seed = source.choice(source.choice(self._seeds))
        return answer_mutant(source, seed, self._others)

    def judge(self, mutant: Mutant) -> Verdict:
        """Through a connection, and directly."""
        answer: Answer = mutant.extra
        seed = answer.seed
        connection = self._connections.pop(seed.key, None) or usable_connection(seed.key)
        asked = Asked(connection, seed, self._request(seed), raw=False)
        first, second = asked.outcomes(mutant)
        usable = connection.state is ConnectionState.READY
        if usable and connection.throttled_until <= ASKED_AT:
            self._connections[seed.key] = connection
        whole = answer.size == 4 + len(mutant.data) and answer.correlation == 0
        if whole:
            return self._judge_whole(mutant, first, second, usable=usable)
        if usable and not isinstance(second, ApiVersionsResponse):
            raise Broken(f"the connection lives, and the next request got {second!r}")
        if answer.size < 4 or answer.size > FRAME_LIMIT:
            check_closed(connection, InvalidFrame)
        elif answer.correlation:
            check_closed(connection, ProtocolError)
        return self._judge_broken(mutant, connection, first)

    def _request(self, seed: Seed) -> Request:
        """Something that can be sent in that version."""
        wanted = (seed.key, seed.version)
        if wanted not in self._requests:
            made = random_message(
                random.Random(7), api_versions.request_class(seed.key), seed.version
            )
            self._requests[wanted] = made  # type: ignore[assignment]
        return self._requests[wanted]

    def _judge_whole(
        self, mutant: Mutant, first: object, second: object, *, usable: bool
    ) -> Verdict:
        """The frame was right: only its own request may fail, and direct decoding agrees."""
        answer: Answer = mutant.extra
        if answer.copies == 1 and not (usable and isinstance(second, ApiVersionsResponse)):
            raise Broken(f"a whole frame spoiled its connection: {second!r}")
        verdict = read_directly(answer.seed, mutant.data, first)
        return verdict if answer.copies == 1 else Verdict("connection closed", verdict.reached)

    def _judge_broken(self, mutant: Mutant, connection: Connection, first: object) -> Verdict:
        """The frame was not right: whatever the rest of the stream was taken for, it is typed."""
        if isinstance(first, Response):
            return Verdict("decoded", True)
        if isinstance(first, RequestTimedOut):
            return Verdict("waited for more", False)
        if isinstance(first, ConnectionLost):
            return Verdict("connection closed", False)
        if isinstance(first, ProtocolError):
            return Verdict("refused", reached(first, mutant))
        raise Broken(f"the request ended with {first!r}")


def check_closed(connection: Connection, cause: type[KafkaError]) -> None:
    """Check that the connection ended because of the bytes, and not by a timeout."""
    error = connection.error
    if not isinstance(error, ConnectionLost) or not isinstance(error.__cause__, cause):
        raise Broken(f"the connection should have ended for {cause.__name__}: {error!r}")


def reached(error: ProtocolError, mutant: Mutant) -> bool:
    """Whether the first field of the body was read before something was found wrong."""
    answer: Answer = mutant.extra
    start = 4 + (1 if answer.seed.header is not None else 0)
    if error.offset is None or not 0 <= error.offset <= answer.size:
        raise Broken(f"the error has the offset {error.offset}: {error}")
    return error.struct not in (None, "ResponseHeader") and error.offset > start


def outcome_of(decode: object) -> object:
    """Call it; a message or the typed error."""
    try:
        return decode()  # type: ignore[operator]
    except (ProtocolError, NoCommonVersion) as error:
        return error


def same(one: object, other: object) -> bool:
    """Equal messages, or errors with equal texts."""
    if isinstance(one, ProtocolError) and isinstance(other, ProtocolError):
        return (str(one), one.struct, one.field) == (str(other), other.struct, other.field)
    return type(one) is type(other) and (one == other or repr(one) == repr(other))


def read_directly(seed: Seed, data: bytes, first: object) -> Verdict:
    """Decode the response without a connection; ``first`` is what came through one."""
    if isinstance(first, ProtocolError) and first.struct == "ResponseHeader":
        return Verdict("header refused", False)
    cls: type[Message] = api_versions.request_class(seed.key).RESPONSE
    frame = bytes(4) + data
    offset = 4
    if seed.header is not None:
        from kclient.protocol.headers import decode_response_header

        _, offset = decode_response_header(frame, seed.key, seed.version)
    direct = outcome_of(lambda: cls.decode(frame, seed.version, offset))
    if not same(first, direct):
        raise Broken(f"through the connection {first!r}, directly {direct!r}")
    if issubclass(cls, SteppedResponse):
        steps = outcome_of(lambda: run_steps(cls, frame, seed.version, offset))
        if not same(direct, steps):
            raise Broken(f"at once {direct!r}, in steps {steps!r}")
    if isinstance(direct, ProtocolError):
        if direct.offset is None or not offset <= direct.offset <= len(frame):
            raise Broken(f"the error has the offset {direct.offset}: {direct}")
        return Verdict("refused", direct.offset > offset)
    if not isinstance(direct, Response):
        raise Broken(f"neither a message nor a typed error: {direct!r}")
    return Verdict("decoded", True)


def run_steps(
    cls: type[SteppedResponse], data: bytes, version: int, offset: int
) -> SteppedResponse:
    """Decode in steps."""
    steps = cls.decode_steps(data, version, offset)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        found: SteppedResponse = end.value
        return found


def make() -> Frames:
    """The target."""
    return Frames()
