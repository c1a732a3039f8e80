"""The APIs that are served, their versions, and the response that lists them (ApiVersions, 18).

Tests name an API by its request class, Kafka's name or number. The handler follows KIP-35, KIP-511
and KIP-584.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kclient.error_codes import ErrorCode
from kclient.errors import InvalidArgument
from kclient.protocol.api_versions import API_NAMES
from kclient.protocol.message import Request
from kclient.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kclient.protocol.messages.produce import ProduceRequest
from kclient.testing.arguments import did_you_mean

if TYPE_CHECKING:
    from kclient.testing.request_context import RequestContext

VERSIONS: dict[int, tuple[int, int]] = {
    0: (3, 13),  # Produce
    1: (4, 18),  # Fetch
    2: (1, 11),  # ListOffsets
    3: (0, 13),  # Metadata
    8: (2, 10),  # OffsetCommit
    9: (1, 10),  # OffsetFetch
    10: (0, 6),  # FindCoordinator
    11: (0, 9),  # JoinGroup
    12: (0, 4),  # Heartbeat
    13: (0, 5),  # LeaveGroup
    14: (0, 5),  # SyncGroup
    15: (0, 6),  # DescribeGroups
    16: (0, 5),  # ListGroups
    17: (0, 1),  # SaslHandshake
    18: (0, 4),  # ApiVersions
    19: (2, 7),  # CreateTopics
    20: (1, 6),  # DeleteTopics
    21: (0, 2),  # DeleteRecords
    22: (0, 5),  # InitProducerId
    23: (2, 4),  # OffsetForLeaderEpoch
    24: (0, 5),  # AddPartitionsToTxn
    25: (0, 4),  # AddOffsetsToTxn
    26: (0, 5),  # EndTxn
    27: (1, 2),  # WriteTxnMarkers
    28: (0, 5),  # TxnOffsetCommit
    29: (1, 3),  # DescribeAcls
    30: (1, 3),  # CreateAcls
    31: (1, 3),  # DeleteAcls
    32: (1, 4),  # DescribeConfigs
    33: (0, 2),  # AlterConfigs
    35: (1, 5),  # DescribeLogDirs
    36: (0, 2),  # SaslAuthenticate
    37: (0, 3),  # CreatePartitions
    38: (1, 3),  # CreateDelegationToken
    39: (1, 2),  # RenewDelegationToken
    40: (1, 2),  # ExpireDelegationToken
    41: (1, 3),  # DescribeDelegationToken
    42: (0, 2),  # DeleteGroups
    43: (0, 2),  # ElectLeaders
    44: (0, 1),  # IncrementalAlterConfigs
    47: (0, 0),  # OffsetDelete
    48: (0, 1),  # DescribeClientQuotas
    49: (0, 1),  # AlterClientQuotas
    50: (0, 0),  # DescribeUserScramCredentials
    51: (0, 0),  # AlterUserScramCredentials
    60: (0, 2),  # DescribeCluster
    61: (0, 0),  # DescribeProducers
    65: (0, 0),  # DescribeTransactions
    66: (0, 2),  # ListTransactions
    68: (0, 1),  # ConsumerGroupHeartbeat
    74: (0, 1),  # ListConfigResources
    75: (0, 0),  # DescribeTopicPartitions
    76: (1, 1),  # ShareGroupHeartbeat
}
"""API key to the lowest and highest version, as in Apache Kafka 4.3.0; see ``dispatch``."""

_CLIENT_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class _Feature(NamedTuple):
    name: str
    lowest: int
    highest: int
    finalized: int


_ORDER_OF_FINALIZED = (
    "transaction.version",
    "eligible.leader.replicas.version",
    "metadata.version",
)
"""As Kafka's map of them has it."""


def _features(transaction_version: int) -> list[_Feature]:
    """Features in Kafka's order, which is another one for the finalized ones.

    Those of APIs that are not served (groups, share groups, streams) are left out.
    """
    return [
        _Feature("metadata.version", 7, 30, 30),
        _Feature("transaction.version", 0, 2, transaction_version),
        _Feature("eligible.leader.replicas.version", 0, 1, 1),
    ]


Versions: TypeAlias = Mapping[int, tuple[int, int]]
ApiName: TypeAlias = type[Request] | str | int
"""``ProduceRequest``, ``"Produce"`` or ``0``."""


def api_key_of(api: ApiName) -> int:
    """Kafka's number of an API.

    Raises:
        InvalidArgument: There is no such API.
    """
    if isinstance(api, type) and issubclass(api, Request):
        return api.API_KEY
    if isinstance(api, (str, int)) and not isinstance(api, bool):
        for key, name in API_NAMES.items():
            if api in (key, name):
                return key
    raise InvalidArgument(
        f"api {api!r} is neither a request class, nor a name or number of Kafka's"
        + did_you_mean(api, API_NAMES.values())
    )


def served_key_of(api: ApiName) -> int:
    """Kafka's number of an API that the embedded cluster serves.

    Raises:
        InvalidArgument: There is no such API, or the brokers here don't serve it.
    """
    key = api_key_of(api)
    if key not in VERSIONS:
        raise InvalidArgument(f"{API_NAMES[key]} isn't served by the embedded cluster")
    return key


def handle(call: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """List the APIs and features that are served."""
    code = call.error_for()
    if code is None and call.version >= 3 and not _valid(request):
        code = ErrorCode.INVALID_REQUEST
    if code is not None:
        return ApiVersionsResponse(error_code=code)
    # Before v4 a lowest level of 0 can't be encoded (KIP-1022), so such features are left out.
    features = _features(call.image.transaction_version)
    shown = [one for one in features if one.lowest > 0 or call.version >= 4]
    return ApiVersionsResponse(
        api_keys=_listed(call.broker.versions),
        supported_features=[SupportedFeatureKey(*one[:3]) for one in shown],
        finalized_features_epoch=1,
        finalized_features=[
            FinalizedFeatureKey(one.name, one.finalized, one.finalized)
            for one in sorted(features, key=lambda one: _ORDER_OF_FINALIZED.index(one.name))
            if one.finalized > 0
        ],
    )


def unsupported_version_response(versions: Versions) -> ApiVersionsResponse:
    """Response for an unknown version, in v0: it has the versions of this one API."""
    key = ApiVersionsRequest.API_KEY
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[ApiVersion(key, *versions[key])]
    )


def _listed(versions: Versions) -> list[ApiVersion]:
    """All served APIs; Kafka 4 lists Produce from v0 on, for librdkafka (KAFKA-18659)."""
    return [
        ApiVersion(key, 0 if key == ProduceRequest.API_KEY else lowest, highest)
        for key, (lowest, highest) in sorted(versions.items())
    ]


def _valid(request: ApiVersionsRequest) -> bool:
    return bool(
        _CLIENT_NAME.fullmatch(request.client_software_name)
        and _CLIENT_NAME.fullmatch(request.client_software_version)
    )
