"""The comparison itself, without a real broker: what agrees, what doesn't, how it is shown."""

from __future__ import annotations

import struct

from kclient.error_codes import ErrorCode
from kclient.testing import Cluster
from tests.conformance.compare import difference, missing_codes, play, render
from tests.conformance.normalisation import load
from tests.conformance.places import Embedded
from tests.conformance.plain import batches
from tests.conformance.run import CLOSED, Exchange, Run, Transcript
from tests.conformance.scenario import Scenario, all_scenarios
from tests.unit.testing.batches import batch_bytes

RULES = load()


async def _transcript(cluster: Cluster, scenario: Scenario, token: str = "7a7a") -> Transcript:
    return await play(scenario, Embedded(cluster), token)


async def test_two_clusters_agree_and_a_planted_error_does_not() -> None:
    """They differ in ids, ports, sessions and all else that the rules are for."""
    scenario = all_scenarios()["fetch_sessions.a_session_reports_only_news"]
    async with Cluster(1, seed=1) as one, Cluster(1, seed=2) as two, Cluster(1, seed=3) as three:
        three.faults.error("Fetch", ErrorCode.OFFSET_OUT_OF_RANGE, times=1)
        kafka, ours, bad = [await _transcript(cluster, scenario) for cluster in (one, two, three)]
    assert difference(ours, kafka, RULES) == ""
    found = difference(bad, kafka, RULES)
    assert "+1 Fetch v12: " in found
    assert "OFFSET_OUT_OF_RANGE (1)" in found


def _one(answer: object, api: str = "Fetch") -> Transcript:
    return Transcript("7a7a", [Exchange(f"{api} v1", api, answer)])  # type: ignore[arg-type]


def test_differences_are_reported_by_their_paths() -> None:
    """From Kafka's response to ours."""
    found = difference(_one({"parts": [{"size": 1}]}), _one({"parts": [{"size": None}]}), RULES)
    assert found.splitlines()[-2:] == [
        "-1 Fetch v1: parts[0].size = None",
        "+1 Fetch v1: parts[0].size = 1",
    ]


def test_null_and_empty_and_absent_are_three_things() -> None:
    """Java clients fail on a null in place of a list."""
    lists = [_one({"parts": None}), _one({"parts": []}), _one({}), _one(CLOSED)]
    for one in lists:
        for other in lists:
            assert bool(difference(one, other, RULES)) == (one is not other)


def test_codes_that_are_not_shown_are_missed() -> None:
    """A scenario that doesn't cause the errors it is there to show proves nothing."""

    async def nothing(run: Run) -> None:
        """Send no request."""

    codes = frozenset((ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.CORRUPT_MESSAGE))
    scenario = Scenario("x.nothing", "Fetch", codes, 1, nothing)
    shown = _one({"parts": [{"error_code": "OFFSET_OUT_OF_RANGE (1)"}]})
    assert missing_codes(scenario, shown) == ["CORRUPT_MESSAGE (2)"]


def test_batches_are_taken_apart_to_the_last_byte() -> None:
    """A wrong CRC and a batch that is cut are shown."""
    data = batch_bytes(2)
    whole, cut = batches(data + data[:-1])
    assert whole["crc"] == "right"
    assert whole["record_count"] == 2
    assert cut == {"cut": data[:-1].hex()}
    assert batches(data[:10]) == [{"cut": data[:10].hex()}]
    wrong = bytearray(data)
    struct.pack_into(">I", wrong, 17, 5)
    assert batches(bytes(wrong))[0]["crc"] == "00000005"


def test_what_is_printed_has_every_field() -> None:
    """Empty lists and closed connections are printed, too."""
    transcript = _one({"a": [], "b": {"c": 1}})
    transcript.exchanges.append(Exchange("Fetch v2", "Fetch", CLOSED))
    assert list(render(transcript.exchanges)) == [
        "1 Fetch v1: a = []",
        "1 Fetch v1: b.c = 1",
        f"2 Fetch v2: {CLOSED}",
    ]
