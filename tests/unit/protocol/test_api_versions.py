"""Picking the version: the highest that both sides speak, or an error that shows both ranges."""

from __future__ import annotations

import pytest

from kclient.errors import NoCommonVersion
from kclient.protocol.api_versions import NodeApiVersions, VersionRange
from kclient.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kclient.protocol.messages.fetch import FetchRequest
from kclient.protocol.messages.list_offsets import ListOffsetsRequest
from kclient.protocol.messages.share_fetch import ShareFetchRequest


def node(first: int, last: int, key: int = FetchRequest.API_KEY) -> NodeApiVersions:
    return NodeApiVersions({key: VersionRange(first, last)}, node_id=4)


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [(0, 6, 6), (4, 18, 18), (4, 99, 18), (0, 0, 0), (18, 30, 18)],
)
def test_the_highest_common_version_is_used(first: int, last: int, expected: int) -> None:
    versions = node(first, last)
    assert versions.usable[FetchRequest, None] == expected
    assert versions.usable[FetchRequest, None] == expected  # a second time, from the cache


def test_a_cap_lowers_the_upper_end() -> None:
    versions = node(0, 18)
    assert versions.usable[FetchRequest, 12] == 12
    assert versions.usable[FetchRequest, None] == 18
    assert versions.usable[FetchRequest, 99] == 18
    with pytest.raises(NoCommonVersion):
        node(13, 18).usable[FetchRequest, 12]


def test_no_common_version_names_the_api_both_ranges_and_the_broker() -> None:
    with pytest.raises(NoCommonVersion) as caught:
        node(19, 25).usable[FetchRequest, None]
    text = str(caught.value)
    for piece in ("Fetch", "API 1", "0 to 18", "19 to 25", "broker 4"):
        assert piece in text
    assert caught.value.node_id == 4


def test_an_api_that_the_broker_lacks_is_no_common_version() -> None:
    with pytest.raises(NoCommonVersion, match="doesn't offer it at all"):
        node(0, 18).usable[ListOffsetsRequest, None]
    with pytest.raises(NoCommonVersion, match="the broker"):
        NodeApiVersions({}).usable[FetchRequest, None]


def test_an_early_access_version_is_not_common() -> None:
    """Kafka 3.9 offers ShareFetch version 0, which was never stable."""
    with pytest.raises(NoCommonVersion):
        node(0, 0, ShareFetchRequest.API_KEY).usable[ShareFetchRequest, None]


def test_a_response_becomes_ranges() -> None:
    response = ApiVersionsResponse(api_keys=[ApiVersion(1, 4, 18), ApiVersion(999, 0, 3)])
    for version in range(5):
        read = ApiVersionsResponse.decode(response.encode(version), version)
        versions = NodeApiVersions.from_response(read, node_id=2)
        assert versions.ranges == {1: (4, 18), 999: (0, 3)}
        assert versions.node_id == 2


def test_a_range_shows_both_ends_if_they_differ() -> None:
    assert str(VersionRange(4, 6)) == "4 to 6"
    assert str(VersionRange(4, 4)) == "4"


def test_connections_to_brokers_of_the_same_software_share_one_table() -> None:
    """There may be thousands of connections, and a table has a row for each API."""
    keys = [ApiVersion(key, 0, 3) for key in range(90)]
    first, second = (
        NodeApiVersions.from_response(ApiVersionsResponse(api_keys=keys), node_id=node_id)
        for node_id in (1, 2)
    )
    assert first.ranges is second.ranges


def test_a_table_that_no_broker_sends_is_not_kept() -> None:
    keys = [ApiVersion(key, 0, 3) for key in range(1_000)]
    first, second = (
        NodeApiVersions.from_response(ApiVersionsResponse(api_keys=keys)) for _ in range(2)
    )
    assert first.ranges == second.ranges
    assert first.ranges is not second.ranges
