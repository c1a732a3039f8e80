"""Each rule of `normalisation.toml` is needed, and each kind of rule works."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.compare import difference, play_both
from tests.conformance.normalisation import MOST_RULES, BadRule, Rule, load, normalised
from tests.conformance.places import Place
from tests.conformance.run import Exchange, Transcript
from tests.conformance.scenario import all_scenarios

RULES = load()
_ATTEMPTS = 8
"""Random values may be equal by chance, as the id of one of three brokers."""
PROOFS = [
    pytest.param(rule, api, proof, id=f"{rule.how}-{rule.path}-{api}")
    for rule in RULES
    for api, proof in zip(rule.api, rule.proof, strict=True)
]


@pytest.fixture
def place(proof: str, request: pytest.FixtureRequest) -> Place:
    """The real side for the scenario of ``proof``, set up before a loop runs."""
    several = all_scenarios()[proof].nodes > 1
    found: Place = request.getfixturevalue("real_nodes" if several else "one_node")
    return found


@pytest.mark.parametrize(("rule", "api", "proof"), PROOFS)
async def test_a_rule_is_needed(rule: Rule, api: str, proof: str, place: Place) -> None:
    """Without the rule, its proof for that API differs."""
    scenario = all_scenarios()[proof]
    others = [one for one in RULES if one is not rule]
    for seed in range(_ATTEMPTS):
        ours, theirs = await play_both(scenario, place, seed)
        for one in (ours, theirs):
            one.exchanges = [exchange for exchange in one.exchanges if exchange.api == api]
        if difference(ours, theirs, others):
            return
    pytest.fail(f"{rule} isn't needed for {api} by {proof}")


def test_proofs_are_scenarios_that_ask_that_api() -> None:
    """The name of a missing scenario would fail late, and only with a broker."""
    known = all_scenarios()
    assert [proof for rule in RULES for proof in rule.proof if proof not in known] == []


def _rule(how: str, path: str, **more: object) -> Rule:
    return Rule(("Fetch",), path, how, "a reason of four words", ("x",), **more)  # type: ignore[arg-type]


def _applied(rule: Rule, answer: dict[str, object], *, listing: bool = False) -> object:
    transcript = Transcript("7a7a", [Exchange("Fetch v1", "Fetch", answer, listing)])
    return normalised(transcript, [rule])[0].answer


def test_symbols_are_given_in_the_order_of_sight() -> None:
    """Values that mean that there is none are kept."""
    rule = _rule("symbol", "**.id", kind="topic", keep=(0,))
    answer = {"id": "b", "parts": [{"id": "a"}, {"id": "b"}, {"id": -1}, {"id": None}, {"id": 0}]}
    assert _applied(rule, answer) == {
        "id": "<topic 1>",
        "parts": [
            {"id": "<topic 2>"},
            {"id": "<topic 1>"},
            {"id": -1},
            {"id": None},
            {"id": 0},
        ],
    }


def test_masks_leave_nothing_and_what_is_kept() -> None:
    """A null in place of a value is a difference."""
    rule = _rule("mask", "parts[].size", keep=(0,))
    answer = {"parts": [{"size": 7}, {"size": 0}, {"size": -1}, {"size": None}]}
    assert _applied(rule, answer) == {
        "parts": [{"size": "<masked>"}, {"size": 0}, {"size": -1}, {"size": None}]
    }


def test_times_that_are_not_now_are_reported() -> None:
    """Only times from the broker's clock are left out."""
    assert _applied(_rule("now", "at"), {"at": 1_700_000_000_000}) == {"at": 1_700_000_000_000}


def test_what_is_skipped_may_be_there_or_not() -> None:
    """A mask would show the difference."""
    rule = _rule("skip", "text")
    assert _applied(rule, {"text": None}) == _applied(rule, {"text": "no"})


def test_own_is_for_listings_alone() -> None:
    """The response to a request by name is compared whole."""
    rule = _rule("own", "groups", by="name")
    groups = [{"name": "a-7a7a"}, {"name": "b"}]
    assert _applied(rule, {"groups": groups}) == {"groups": groups}
    assert _applied(rule, {"groups": groups}, listing=True) == {"groups": groups[:1]}


def test_orders_are_reported_but_where_a_rule_says_so() -> None:
    """A list with a rule is sorted by the rule's fields."""
    answer = {"topics": [{"name": "b"}, {"name": "a"}], "other": [2, 1]}
    assert _applied(_rule("sort", "topics", by="name"), answer) == {
        "topics": [{"name": "a"}, {"name": "b"}],
        "other": [2, 1],
    }


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('how = "mask"', 'how = "hide"'), "how is one of"),
        (("too short no more", "short"), "the reason is missing"),
        (('proof = ["x"]', "proof = []"), "a proof for each API"),
        (('how = "mask"', 'how = "sort"'), "have `by`"),
        (('how = "mask"', 'how = "symbol"'), "have `as`"),
        (('path = "a"', ""), "path"),
    ],
)
def test_a_rule_that_can_not_be_is_refused(
    tmp_path: Path, change: tuple[str, str], words: str
) -> None:
    """A mistake in a rule must not make it a rule without effect."""
    good = (
        '[[rule]]\napi = ["Fetch"]\npath = "a"\nhow = "mask"\nreason = "too short no more"\n'
        'proof = ["x"]\n'
    )
    file = tmp_path / "rules.toml"
    file.write_text(good)
    assert len(load(file)) == 1
    file.write_text(good.replace(*change))
    with pytest.raises(BadRule, match=words):
        load(file)
    file.write_text(good * (MOST_RULES + 1))
    with pytest.raises(BadRule, match="are allowed"):
        load(file)
