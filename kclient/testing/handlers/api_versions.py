"""ApiVersions (18): the versions that are served (KIP-35, KIP-511, KIP-584)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kclient.protocol.messages.produce import ProduceRequest
from kclient.testing.call import Call

_CLIENT_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

_FEATURES = (("metadata.version", 7, 30, 30), ("eligible.leader.replicas.version", 0, 1, 1))
"""Name, lowest and highest supported level, finalized level, in Kafka's order, which is reversed
for the finalized ones. Features of APIs that are not served (groups, share groups, streams,
transactions) are left out."""

Versions: TypeAlias = Mapping[int, tuple[int, int]]


def handle(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """List the APIs and features that are served."""
    code = call.error_for()
    if code is None and call.version >= 3 and not _valid(request):
        code = ErrorCode.INVALID_REQUEST
    if code is not None:
        return ApiVersionsResponse(error_code=code)
    # Before v4 a lowest level of 0 can't be encoded (KIP-1022), so such features are left out.
    shown = [one for one in _FEATURES if one[1] > 0 or call.version >= 4]
    return ApiVersionsResponse(
        api_keys=_listed(call.broker.versions),
        supported_features=[SupportedFeatureKey(one[0], one[1], one[2]) for one in shown],
        finalized_features_epoch=1,
        finalized_features=[FinalizedFeatureKey(one[0], one[3], one[3]) for one in _FEATURES[::-1]],
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
