"""The APIs that this client knows, and the version to use: the highest that both sides support.

A connection creates one ``NodeApiVersions`` from the broker's ApiVersions response and queries it
before each request. For each response it checks whether the client must pause for
``throttle_time_ms`` (KIP-219), by API and version: older versions carry the field too, but there
the broker has already delayed its response. A module of messages is loaded only when one of its
classes is requested. Values only: no I/O, no clock.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Self, cast

from kclient.errors import NoCommonVersion, ProtocolError
from kclient.protocol.message import Request
from kclient.protocol.messages import APIS, UNSPOKEN

if TYPE_CHECKING:
    from kclient.protocol.messages.api_versions import ApiVersionsResponse

_MOST_APIS = 256
"""APIs of a broker above which its table is not cached; about three times as many as exist."""


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
"""First version with client-side throttling, for APIs older than KIP-219; later APIs have it in
every version."""

BEGIN_WITH_THROTTLE_TIME = frozenset({1, 3, 78})
"""APIs whose responses begin with the field, so that it can be read without decoding."""

MAX_THROTTLE_TIME = 300.0
"""Most seconds that one response can throttle the client. Quotas cause seconds, after a great burst
minutes; the field can hold 24 days, which damaged bytes or a faulty broker must not cause."""


NO_FEATURES: Mapping[str, int] = MappingProxyType({})
"""Finalized features of a cluster that has none, or of a broker that doesn't report any."""


class Api(NamedTuple):
    """The properties of an API that are known without loading its messages.

    Attributes:
        key: API key.
        name: Kafka's name of the API.
        module: Module in ``kclient.protocol.messages``.
        min_version: Lowest version that this client supports.
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
"""Every API that this client supports, by key."""

BY_KEY: dict[int, Api] = {api.key: api for api in ALL}

API_NAMES: dict[int, str] = {**UNSPOKEN, **{api.key: api.name for api in ALL}}
"""Names of API keys, including those that brokers may list and this client doesn't support."""


def api(api_key: int) -> Api:
    """Return the API of a key; raises ProtocolError if this client doesn't support it."""
    found = BY_KEY.get(api_key)
    if found is None:
        name = API_NAMES.get(api_key)
        raise ProtocolError(f"API {api_key}{f' ({name})' if name else ''} is not spoken here")
    return found


def request_class(api_key: int) -> type[Request]:
    """Return an API's request class; raises ProtocolError if this client doesn't support it."""
    found = api(api_key)
    module = importlib.import_module(f"kclient.protocol.messages.{found.module}")
    return cast(type[Request], getattr(module, f"{found.name}Request"))


@lru_cache(maxsize=1024)
def is_flexible(api_key: int, version: int) -> bool:
    """Return whether headers and body of this version have tagged fields."""
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
    """Return one table for all connections to brokers of one release: it has about ninety rows."""
    return {key: VersionRange(low, high) for key, low, high in keys}


class UsableVersions(dict[tuple[type[Request], int | None], int]):
    """The version of each request that one broker is sent, found at its first look-up.

    Keys are the request's class, and the highest version that the caller can use; None for no such
    limit. A look-up raises NoCommonVersion where there is none.
    """

    def __init__(self, ranges: Mapping[int, VersionRange], node_id: int | None) -> None:
        super().__init__()
        self._ranges = ranges
        self._node_id = node_id

    def __missing__(self, wanted: tuple[type[Request], int | None]) -> int:
        request, cap = wanted
        ours = VersionRange(
            request.MIN_VERSION,
            request.MAX_VERSION if cap is None else min(cap, request.MAX_VERSION),
        )
        theirs = self._ranges.get(request.API_KEY)
        if theirs is None:
            raise self._no_common(request, ours, "doesn't offer it at all")
        version = min(ours.max, theirs.max)
        if version < max(ours.min, theirs.min):
            raise self._no_common(request, ours, f"offers {theirs}")
        self[wanted] = version
        return version

    def _no_common(self, request: type[Request], ours: VersionRange, offer: str) -> NoCommonVersion:
        node = "the broker" if self._node_id is None else f"broker {self._node_id}"
        needed = str(ours) if ours.min <= ours.max else f"at most {ours.max}"
        return NoCommonVersion(
            f"{request.NAME} (API {request.API_KEY}): this call needs version {needed}, "
            f"{node} {offer}",
            node_id=self._node_id,
            hint="upgrade the broker, or do without this feature",
        )


class NodeApiVersions:
    """The API versions of one broker.

    Attributes:
        ranges: API key -> versions.
        node_id: The broker, for error texts; None if unknown.
        features: The level of each feature that the cluster has finalized (KIP-584).
        features_epoch: Rises with each change of them; -1 where the broker reports none.
        usable: The highest version that both sides support, by the request's class and the caller's
            cap, or None; found at the first look-up by ``[]``.
    """

    def __init__(
        self,
        ranges: Mapping[int, VersionRange],
        node_id: int | None = None,
        features: Mapping[str, int] = NO_FEATURES,
        features_epoch: int = -1,
    ) -> None:
        self.ranges = ranges
        self.node_id = node_id
        self.features = features
        self.features_epoch = features_epoch
        self.usable = UsableVersions(ranges, node_id)

    @classmethod
    def from_response(cls, response: ApiVersionsResponse, node_id: int | None = None) -> Self:
        """Create it from a broker's ApiVersions response of any version."""
        keys = [(key.api_key, key.min_version, key.max_version) for key in response.api_keys]
        # A table that is too large for a real broker must not be cached for the whole process.
        table = _table_of if len(keys) <= _MOST_APIS else _table_of.__wrapped__
        features = {one.name: one.max_version_level for one in response.finalized_features}
        return cls(table(tuple(keys)), node_id, features, response.finalized_features_epoch)


def should_client_throttle(api_key: int, version: int) -> bool:
    """Return whether the client must wait, since the broker has not delayed its response."""
    return version >= _FIRST_VERSION.get(api_key, 0)
