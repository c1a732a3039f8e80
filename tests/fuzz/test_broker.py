"""The target that sends mutants to one broker finds planted defects."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from kclient.protocol.messages.metadata import MetadataResponse
from kclient.testing.connection import Channel
from kclient.testing.dispatch import HANDLERS
from kclient.testing.responses import PendingResult
from tests.fuzz import broker
from tests.fuzz.campaign import Portion, portions, run_portion
from tests.fuzz.tally import Tally
from tests.fuzz.targets import Broken, source_of

ENOUGH = 600


def judge_many(count: int = ENOUGH) -> None:
    target = broker.make()
    try:
        for number in range(count):
            target.judge(target.mutant(source_of(0, number)))
    except Broken:
        with contextlib.suppress(Broken):
            target.close()
        raise
    target.close()


def plant(monkeypatch: pytest.MonkeyPatch, key: int, handle: Any) -> None:
    monkeypatch.setitem(HANDLERS, key, handle)


def test_a_sound_broker_passes() -> None:
    judge_many()


def test_a_handler_that_fails_on_some_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = HANDLERS[3]

    def handle(call: Any, request: Any) -> Any:
        if call.client_id == "fuzz" and call.version >= 10:
            raise KeyError("planted")
        return sound(call, request)

    plant(monkeypatch, 3, handle)
    with pytest.raises(Broken, match="planted"):
        judge_many()


def test_a_handler_that_never_responds_to_some_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = HANDLERS[3]

    def handle(call: Any, request: Any) -> Any:
        return PendingResult() if call.client_id == "fuzz" else sound(call, request)

    plant(monkeypatch, 3, handle)
    with pytest.raises(Broken, match="neither answered nor hung up"):
        judge_many()


def test_a_broker_that_is_spoiled_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    sound, asked = HANDLERS[3], []

    def handle(call: Any, request: Any) -> Any:
        asked.append(call.client_id)
        if asked.count("fuzz") > 3:
            return MetadataResponse(controller_id=1 << 40)
        return sound(call, request)

    plant(monkeypatch, 3, handle)
    with pytest.raises(Broken):
        judge_many()


def test_a_connection_that_stays_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Channel, "abort", lambda self: setattr(self, "_input_closed", True))
    with pytest.raises(Broken, match="neither answered nor hung up"):
        judge_many()


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "portion", list(portions({"broker": 100_000}, seed=1)), ids=lambda portion: str(portion.first)
)
def test_100_000_mutants(portion: Portion, tally: Tally) -> None:
    found = run_portion(portion)
    tally.merge(found)
    assert found.total("broker") == portion.count
