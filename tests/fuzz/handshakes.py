"""ApiVersions responses, as the first thing that a peer sends on a new connection.

A false response is repeated until the connection is usable or closed, which must be so after a few
of them, however the versions in it go up and down. A usable connection must then have a version,
or a typed error, for every API.
"""

from __future__ import annotations

import random
import struct

from kclient.errors import BrokerUnreachable, ConnectionLost, NoCommonVersion, ProtocolError
from kclient.network.connection import Connection, ConnectionState
from kclient.protocol import api_versions
from kclient.protocol.api_versions import NodeApiVersions
from kclient.protocol.message import Request
from kclient.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from tests.fuzz.frames import LATER, SETUP, answer_mutant, deliver, new_connection
from tests.fuzz.seeds import response_seed, seeds_of
from tests.fuzz.targets import Broken, Mutant, Verdict

API_VERSIONS = ApiVersionsRequest.API_KEY
UNSUPPORTED_VERSION = 35
BODY_OFFSET = 4
ROUNDS = 8
"""Responses after which the handshake must be over: there are five versions to ask in."""
CLASSES = [api_versions.request_class(api.key) for api in api_versions.ALL]


def sound_answers() -> list[ApiVersionsResponse]:
    """The responses of brokers of several ages."""
    keys = [ApiVersion(api.key, api.min_version, api.max_version) for api in api_versions.ALL]
    fallback = ApiVersionsResponse(UNSUPPORTED_VERSION, [ApiVersion(API_VERSIONS, 0, 3)])
    features = [SupportedFeatureKey("metadata.version", 1, 27)]
    finalized = [FinalizedFeatureKey("metadata.version", 25, 25)]
    return [
        ApiVersionsResponse(0, keys[::3]),
        ApiVersionsResponse(
            0,
            keys,
            supported_features=features,
            finalized_features=finalized,
            finalized_features_epoch=4,
        ),
        fallback,
        ApiVersionsResponse(UNSUPPORTED_VERSION, []),
    ]


class Handshakes:
    """The target; see the docstring of the file."""

    traced = True

    def __init__(self) -> None:
        self._seeds = [seed for seeds in seeds_of(API_VERSIONS) for seed in seeds]
        for response in sound_answers():
            for version in (0,) if response.error_code else (3, 4):
                self._seeds.append(response_seed(API_VERSIONS, version, response.encode(version)))
        self._others = [seed.root.raw for seed in self._seeds]

    def mutant(self, source: random.Random) -> Mutant:
        """Of an ApiVersions response, most of them in a version that is looked for."""
        return answer_mutant(source, source.choice(self._seeds), self._others)

    def judge(self, mutant: Mutant) -> Verdict:
        """Deliver it on a new connection, as often as it takes."""
        connection = new_connection()
        connection.opened(0.0, SETUP)
        answer = mutant.extra
        rounds = 0
        while connection.state is ConnectionState.NEGOTIATING and rounds < ROUNDS:
            rounds += 1
            asked = connection.in_flight.oldest
            if asked is None or not connection.take_output():
                break
            wrong = (asked.correlation_id + answer.correlation) & 0xFFFFFFFF
            frame = struct.pack(">iI", answer.size, wrong) + mutant.data
            deliver(connection, frame * answer.copies, 1.0)
        if connection.state is ConnectionState.READY:
            if answer.copies == 1:
                ask_for_versions(connection)
            return Verdict("usable", True)
        waited = not connection.is_closed
        connection.expire(LATER)
        if not connection.is_closed or rounds >= ROUNDS:
            raise Broken(f"after {rounds} answers it is {connection.state.name}")
        if not isinstance(connection.error, (BrokerUnreachable, ConnectionLost)):
            raise Broken(f"it ended with {connection.error!r}")
        if connection.take_outcomes():
            raise Broken("a request of the handshake was told to its driver")
        if waited:
            return Verdict("waited for more", rounds > 1)
        return Verdict(f"closed after {min(rounds, 2)}", rounds > 1 or was_read(connection))


def was_read(connection: Connection) -> bool:
    """Whether the error code, the first field, was read before the connection was closed."""
    cause = connection.error.__cause__ if connection.error is not None else None
    if not isinstance(cause, ProtocolError):
        return True  # the whole response was read, and has an error code
    in_body = cause.struct not in (None, "Frame", "ResponseHeader")
    return in_body and cause.offset is not None and cause.offset > BODY_OFFSET


def ask_for_versions(connection: Connection) -> None:
    """Every API has a usable version of kclient's, or raises a typed error."""
    versions = connection.versions
    if versions is None:
        raise Broken("it is usable without versions")
    for cls in CLASSES:
        try:
            spoken = versions.usable[cls, None]
        except NoCommonVersion as error:
            str(error)
            if common(cls, versions):
                raise Broken(f"{cls.__name__} is supported, but {error}") from error
        else:
            if not cls.MIN_VERSION <= spoken <= cls.MAX_VERSION or not common(cls, versions):
                raise Broken(f"{cls.__name__} is to be spoken in version {spoken}")


def common(cls: type[Request], versions: NodeApiVersions) -> bool:
    """Whether both sides speak a version of it."""
    low, high = versions.ranges.get(cls.API_KEY, (0, -1))
    return max(low, cls.MIN_VERSION) <= min(high, cls.MAX_VERSION)


def make() -> Handshakes:
    """The target."""
    return Handshakes()
