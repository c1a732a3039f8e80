"""We speak every API of both Kafka releases, in every stable version, and no other."""

from __future__ import annotations

from kclient.protocol import registry
from kclient.protocol.messages import RETIRED
from tests.golden.kafka_side import NEWER, OLDER, ask


def _stable(release: str) -> dict[int, tuple[str, range]]:
    """API key -> name and versions, without those that the release marks as unstable."""
    found = {}
    for line in ask(release, ["apis"]):
        _, key, name, first, last = line.split("\t")
        found[int(key)] = (name, range(int(first), int(last) + 1))
    return {key: one for key, one in found.items() if len(one[1])}


def test_the_apis_and_versions_are_the_union_of_both_releases() -> None:
    newer, older = _stable(NEWER), _stable(OLDER)
    expected = {}
    for key in (newer.keys() | older.keys()) - RETIRED.keys():
        ranges = [one[key][1] for one in (newer, older) if key in one]
        expected[key] = (min(one.start for one in ranges), max(one.stop for one in ranges) - 1)
    assert {api.key: (api.min_version, api.max_version) for api in registry.ALL} == expected


def test_retired_apis_are_those_that_the_newer_release_dropped() -> None:
    newer, older = _stable(NEWER), _stable(OLDER)
    assert RETIRED.keys() == older.keys() - newer.keys()
