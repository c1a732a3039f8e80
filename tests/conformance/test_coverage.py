"""There are scenarios for all APIs of the embedded cluster and for all its error codes."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

import kclient.testing
from kclient.error_codes import ErrorCode
from kclient.protocol.api_versions import API_NAMES
from kclient.testing.dispatch import HANDLERS
from tests.conformance.known import KNOWN
from tests.conformance.normalisation import MOST_RULES, load
from tests.conformance.scenario import Scenario, all_scenarios

SERVED = {API_NAMES[key] for key in HANDLERS} - {"ConsumerGroupHeartbeat", "ShareGroupHeartbeat"}
"""Without the APIs that are only refused."""
LEAST_PER_API = 2
LEAST_IN_ALL = 200
LEAST_ON_THREE_NODES, NODES = 40, 3
SOURCES = Path(kclient.testing.__file__).parent
_MENTION = re.compile(r"\bErrorCode\.([A-Z][A-Z_]+)")

NOT_SHOWN: dict[ErrorCode, str] = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "once per cluster, while its first group's topic is made",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "for the milliseconds that Kafka loads a partition",
    ErrorCode.NETWORK_EXCEPTION: (
        "of brokers that don't reach a transaction's coordinator: producers get another code"
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (
        "with eligible leader replicas the high watermark stays while too few are in sync, and so "
        "the request times out instead"
    ),
    ErrorCode.NOT_CONTROLLER: (
        "told where no controller can be reached: Kafka's broker tries for longer than a minute, "
        "whatever the request's time, so that clients time out"
    ),
    ErrorCode.INVALID_UPDATE_VERSION: "told by the controller to a leader, no client",
    ErrorCode.INELIGIBLE_REPLICA: "told by the controller to a leader, no client",
    ErrorCode.SASL_AUTHENTICATION_FAILED: (
        "told by listeners of SASL: tests/security/test_agreement.py compares them"
    ),
    **dict.fromkeys(
        (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        ),
        "told where there is an authorizer: tests/security/test_acl_agreement.py compares them",
    ),
    **dict.fromkeys(
        (
            ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
            ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
            ErrorCode.DELEGATION_TOKEN_EXPIRED,
            ErrorCode.INVALID_PRINCIPAL_TYPE,
        ),
        "told to users that logged in: tests/security/test_token_agreement.py compares them",
    ),
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: (
        "told to such users by brokers without a secret for tokens, and ours have one"
    ),
    ErrorCode.REPLICA_NOT_AVAILABLE: "told to the test that calls Cluster.move_leader, no client",
}
"""Error codes of the embedded cluster that no scenario can cause, and why."""


def mentioned_codes() -> dict[ErrorCode, list[str]]:
    """Every error code that the sources of the embedded cluster name, and in which files."""
    found: dict[ErrorCode, list[str]] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        for name in sorted(set(_MENTION.findall(path.read_text()))):
            found.setdefault(ErrorCode[name], []).append(str(path.relative_to(SOURCES)))
    found.pop(ErrorCode.NONE)
    return found


def agreeing() -> list[Scenario]:
    """The scenarios that count: all but those that are known to differ."""
    return [one for name, one in all_scenarios().items() if name not in KNOWN]


@pytest.mark.parametrize("api", sorted(SERVED))
def test_each_served_api_has_scenarios(api: str) -> None:
    """At least two of its own."""
    counts = Counter(one.api for one in agreeing())
    assert counts[api] >= LEAST_PER_API


def test_scenarios_are_of_served_apis() -> None:
    """A scenario of another API would compare closed connections."""
    assert sorted({one.api for one in all_scenarios().values()} - SERVED) == []


@pytest.mark.parametrize(
    "code", [pytest.param(code, id=code.name) for code in sorted(mentioned_codes())]
)
def test_each_error_code_is_shown(code: ErrorCode) -> None:
    """A scenario is there to show it, or `NOT_SHOWN` has the reason why none can."""
    shown = {one for scenario in agreeing() for one in scenario.codes}
    if code in NOT_SHOWN:
        assert code not in shown, f"{code.name} is shown: it needs no excuse"
    else:
        assert code in shown, f"{code.name} of {', '.join(mentioned_codes()[code])}"


def test_excuses_are_for_codes_that_are_answered() -> None:
    """A code that was removed from the sources needs none any more."""
    assert sorted(set(NOT_SHOWN) - set(mentioned_codes())) == []


def test_there_are_enough_scenarios() -> None:
    """Enough in all, and enough on three brokers."""
    scenarios = agreeing()
    assert len(scenarios) >= LEAST_IN_ALL
    assert sum(1 for one in scenarios if one.nodes == NODES) >= LEAST_ON_THREE_NODES


def test_known_differences_are_of_scenarios() -> None:
    """An entry whose scenario was renamed would excuse nothing."""
    assert sorted(set(KNOWN) - {one.name for one in all_scenarios().values()}) == []


def test_there_are_no_more_rules_than_were_agreed() -> None:
    """The rules are the only place that leaves fields out of the comparison."""
    assert MOST_RULES == 40
    assert len(load()) <= MOST_RULES
