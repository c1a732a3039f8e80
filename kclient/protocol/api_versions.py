"""The APIs that this client knows, and the version to speak: the highest that both sides know.

A connection makes one ``NodeApiVersions`` from the broker's ApiVersions response and asks it
before each request. From which version of each API on a client must keep silent for
``throttle_time_ms`` (KIP-219) it asks with each response: older versions carry the field too, but
there the broker has delayed its response already. A module of messages is loaded only when one of
its classes is asked for. Values only: no I/O, no clock.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Self, cast

from kclient.errors import NoCommonVersion, ProtocolError
from kclient.protocol.message import Request
from kclient.protocol.messages import APIS, UNSPOKEN

if TYPE_CHECKING:
    from kclient.protocol.messages.api_versions import ApiVersionsResponse

_MOST_APIS = 256
"""So many APIs a broker may serve, about three times as many as there are."""


_FIRST_VERSION = {
    0: 6,  # Produce
    1: 8,  # Fetch
    2: 3,  # ListOffsets
    3: 6,  # Metadata
    8: 4,  # OffsetCommit
    9: 4,  # OffsetFetch
    10: 2,  # FindCoordinator
    11: 3,  # JoinGroup
    12: 2,  # Heartbeat
    13: 2,  # LeaveGroup
    14: 2,  # SyncGroup
    15: 2,  # DescribeGroups
    16: 2,  # ListGroups
    18: 2,  # ApiVersions
    19: 3,  # CreateTopics
    20: 2,  # DeleteTopics
    21: 1,  # DeleteRecords
    22: 1,  # InitProducerId
    23: 3,  # OffsetForLeaderEpoch
    24: 1,  # AddPartitionsToTxn
    25: 1,  # AddOffsetsToTxn
    26: 1,  # EndTxn
    28: 1,  # TxnOffsetCommit
    29: 1,  # DescribeAcls
    30: 1,  # CreateAcls
    31: 1,  # DeleteAcls
    32: 2,  # DescribeConfigs
    33: 1,  # AlterConfigs
    34: 1,  # AlterReplicaLogDirs
    35: 1,  # DescribeLogDirs
    37: 1,  # CreatePartitions
    38: 1,  # CreateDelegationToken
    39: 1,  # RenewDelegationToken
    40: 1,  # ExpireDelegationToken
    41: 1,  # DescribeDelegationToken
    42: 1,  # DeleteGroups
}
"""Of the APIs that are older than KIP-219; the later ones mean it in every version."""

_LEADING_FIELD = {1, 3, 78}
"""APIs whose responses begin with the field, so that it can be read from a raw one."""

_INT32 = struct.Struct(">i")

MAX_THROTTLE_TIME = 300.0
"""Seconds that one response can keep us silent for. Quotas come to seconds, after a great burst to
minutes; the field holds 24 days, and damaged bytes or a lying broker must not have them."""


class Api(NamedTuple):
    """What is known of an API without loading its messages.

    Attributes:
        key: Kafka's number.
        name: Kafka's name.
        module: Below ``kclient.protocol.messages``.
        min_version: Lowest version that this client speaks.
        max_version: Highest one.
        first_flexible: First version with tagged fields, also in the headers; None without.
    """

    key: int
    name: str
    module: str
    min_version: int
    max_version: int
    first_flexible: int | None


ALL: list[Api] = [Api._make(row) for row in APIS]
"""Every API that this client speaks, by key."""

BY_KEY: dict[int, Api] = {api.key: api for api in ALL}

API_NAMES: dict[int, str] = {**UNSPOKEN, **{api.key: api.name for api in ALL}}
"""Names of API keys, those included that brokers may list and this client doesn't speak."""


def api(api_key: int) -> Api:
    """The API of a key; raises ProtocolError if this client doesn't speak it."""
    found = BY_KEY.get(api_key)
    if found is None:
        name = API_NAMES.get(api_key)
        raise ProtocolError(f"API {api_key}{f' ({name})' if name else ''} is not spoken here")
    return found


def request_class(api_key: int) -> type[Request]:
    """The request class of an API; raises ProtocolError if this client doesn't speak it."""
    found = api(api_key)
    module = importlib.import_module(f"kclient.protocol.messages.{found.module}")
    return cast(type[Request], getattr(module, f"{found.name}Request"))


@lru_cache(maxsize=1024)
def is_flexible(api_key: int, version: int) -> bool:
    """Whether headers and body of this version have tagged fields."""
    first = api(api_key).first_flexible
    return first is not None and version >= first


class VersionRange(NamedTuple):
    """Versions ``min`` to ``max``, both included."""

    min: int
    max: int

    def __str__(self) -> str:
        return str(self.min) if self.min == self.max else f"{self.min} to {self.max}"


@lru_cache(maxsize=16)
def _table_of(keys: tuple[tuple[int, int, int], ...]) -> Mapping[int, VersionRange]:
    """One table for all connections to brokers of the same software: it has about ninety rows."""
    return {key: VersionRange(low, high) for key, low, high in keys}


class NodeApiVersions:
    """What one broker speaks.

    Attributes:
        ranges: API key -> versions.
        node_id: The broker, for error texts; None if not known.
    """

    def __init__(self, ranges: Mapping[int, VersionRange], node_id: int | None = None) -> None:
        self.ranges = ranges
        self.node_id = node_id
        self._usable: dict[tuple[int, int | None], int] = {}

    @classmethod
    def from_response(cls, response: ApiVersionsResponse, node_id: int | None = None) -> Self:
        """From a broker's ApiVersions response of any version."""
        keys = [(key.api_key, key.min_version, key.max_version) for key in response.api_keys]
        # What no broker sends isn't to be kept for the rest of the process.
        table = _table_of if len(keys) <= _MOST_APIS else _table_of.__wrapped__
        return cls(table(tuple(keys)), node_id)

    def latest_usable(self, request: type[Request], cap: int | None = None) -> int:
        """The highest version of ``request`` that both sides speak.

        Args:
            request: The request's class.
            cap: Highest version that the caller can use, for example since a newer one changed
                the meaning of a field; None for no limit of its own.

        Raises:
            NoCommonVersion: There is none; the text has the API, both ranges and the broker.
        """
        wanted = (request.API_KEY, cap)
        known = self._usable.get(wanted)
        if known is not None:
            return known
        ours = VersionRange(
            request.MIN_VERSION,
            request.MAX_VERSION if cap is None else min(cap, request.MAX_VERSION),
        )
        theirs = self.ranges.get(request.API_KEY)
        if theirs is None:
            raise self._no_common(request, ours, "doesn't offer it at all")
        version = min(ours.max, theirs.max)
        if version < max(ours.min, theirs.min):
            raise self._no_common(request, ours, f"offers {theirs}")
        self._usable[wanted] = version
        return version

    def _no_common(self, request: type[Request], ours: VersionRange, offer: str) -> NoCommonVersion:
        node = "the broker" if self.node_id is None else f"broker {self.node_id}"
        needed = str(ours) if ours.min <= ours.max else f"at most {ours.max}"
        return NoCommonVersion(
            f"{request.NAME} (API {request.API_KEY}): this call needs version {needed}, "
            f"{node} {offer}",
            node_id=self.node_id,
            hint="upgrade the broker, or do without this feature",
        )


def should_client_throttle(api_key: int, version: int) -> bool:
    """The broker has not waited itself, so the client has to."""
    return version >= _FIRST_VERSION.get(api_key, 0)


def throttle_ms_of_raw(api_key: int, body: memoryview) -> int:
    """``throttle_time_ms`` of an undecoded response of a version that has it; 0 for other APIs."""
    if api_key not in _LEADING_FIELD:
        return 0
    return max(0, int(_INT32.unpack_from(body)[0])) if body.nbytes >= _INT32.size else 0
