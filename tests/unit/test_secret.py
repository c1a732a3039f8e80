"""What is secret isn't shown, whatever is done with it."""

from __future__ import annotations

import copy
import functools
import json
import logging
import pickle
import traceback

import pytest

from kclient import InvalidArgument, Security
from kclient.credentials import Token
from kclient.secret import Secret

CANARY = "canary-5f1c"


def shown(value: object) -> str:
    record = logging.LogRecord("x", 10, "x", 1, "%s %r", (value, value), None)
    return f"{value} {value!r} {value!s:>30} {[value]} {record.getMessage()}"


@pytest.mark.parametrize(
    "value",
    [
        Secret(CANARY),
        Token(CANARY),
        Security.sasl_plain("alice", CANARY),
        Security.oauth(functools.partial(str, CANARY)),
        Security.sasl_scram("alice", Secret(CANARY), mechanism="SCRAM-SHA-256"),
    ],
)
def test_isnt_in_any_text(value: object) -> None:
    assert CANARY not in shown(value)


@pytest.mark.parametrize("work", [pickle.dumps, copy.copy, copy.deepcopy, json.dumps])
def test_cant_leave_the_process(work: object) -> None:
    with pytest.raises(TypeError) as caught:
        work(Secret(CANARY))  # type: ignore[operator]
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_is_equal_to_one_of_the_same_text_only() -> None:
    assert Secret("a") == Secret(Secret("a"))
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a"), Secret("b")}) == 2
    assert not Secret("")


def test_takes_text_only() -> None:
    with pytest.raises(InvalidArgument, match="not a bytes"):
        Secret(b"x")  # type: ignore[arg-type]
