"""kclient has the APIs of both Kafka releases, in every stable version, or knows their names."""

from __future__ import annotations

from kclient.protocol import api_versions
from kclient.protocol.messages import UNSPOKEN
from tests.golden.kafka_side import NEWER, OLDER, ask
from tools.protocol.selection import BROKER_APIS


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
    for key in (newer.keys() | older.keys()) - UNSPOKEN.keys():
        ranges = [one[key][1] for one in (newer, older) if key in one]
        expected[key] = (min(one.start for one in ranges), max(one.stop for one in ranges) - 1)
    assert {api.key: (api.min_version, api.max_version) for api in api_versions.ALL} == expected


def test_unspoken_apis_are_those_of_brokers_only_and_those_that_the_newer_release_dropped() -> None:
    newer, older = _stable(NEWER), _stable(OLDER)
    dropped = older.keys() - newer.keys()
    of_brokers = {key for key, (name, _) in newer.items() if name in BROKER_APIS}
    assert UNSPOKEN.keys() == dropped | of_brokers


def test_every_api_is_named_as_the_newest_release_that_has_it_names_it() -> None:
    named = {**_stable(OLDER), **_stable(NEWER)}
    assert {key: name for key, (name, _) in named.items()} == api_versions.API_NAMES
