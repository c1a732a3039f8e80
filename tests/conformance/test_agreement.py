"""Each scenario plays on the embedded cluster and on Apache Kafka, and the responses are equal."""

from __future__ import annotations

import pytest
from _pytest.mark import ParameterSet

from tests.conformance.compare import difference, missing_codes, play_both
from tests.conformance.known import KNOWN
from tests.conformance.normalisation import load
from tests.conformance.places import OneNode, ThreeNodes
from tests.conformance.run import Transcript
from tests.conformance.scenario import Scenario, all_scenarios

RULES = load()
SCENARIOS = all_scenarios().values()


def on(nodes: int) -> list[ParameterSet]:
    """The scenarios for one broker, or for several."""
    chosen = (one for one in SCENARIOS if (one.nodes > 1) == (nodes > 1))
    return [pytest.param(one, id=one.name) for one in chosen]


def judge(scenario: Scenario, ours: Transcript, theirs: Transcript) -> None:
    """Only the scenarios in KNOWN may differ, and must; each has to show its codes and API."""
    assert not missing_codes(scenario, theirs), "Kafka doesn't answer what it is there to show"
    assert scenario.api in {one.api for one in theirs.exchanges}, "it doesn't ask that API"
    found = difference(ours, theirs, RULES)
    if scenario.name in KNOWN:
        assert found, f"{scenario.name} agrees: it is to leave KNOWN"
    else:
        assert not found, f"\n{found}"


@pytest.mark.parametrize("scenario", on(1))
async def test_one_broker_agrees(scenario: Scenario, one_node: OneNode) -> None:
    """Of scenarios for one broker."""
    judge(scenario, *await play_both(scenario, one_node))


@pytest.mark.parametrize("scenario", on(3))
async def test_three_brokers_agree(scenario: Scenario, real_nodes: ThreeNodes) -> None:
    """Of scenarios for three brokers, which may stop some of them."""
    try:
        ours, theirs = await play_both(scenario, real_nodes)
    finally:
        await real_nodes.heal()
    judge(scenario, ours, theirs)
