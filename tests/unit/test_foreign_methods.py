"""Methods of other clients: the AttributeError names the replacement, as the page does."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from kclient import Admin, Consumer, Producer
from kclient.foreign_methods import TABLE, answer

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "migrating.md"
HEADINGS: dict[str, type] = {
    "AIOKafkaProducer": Producer,
    "AIOKafkaConsumer": Consumer,
    "AIOKafkaAdminClient": Admin,
    "KafkaProducer": Producer,
    "KafkaConsumer": Consumer,
    "KafkaAdminClient": Admin,
    "Producer and AIOProducer": Producer,
    "Consumer and AIOConsumer": Consumer,
    "AdminClient": Admin,
}
CLIENTS = [Admin, Consumer]
"""Clients that name replacements."""


def rows() -> Iterator[tuple[type, str, str]]:
    """Yield our class, the name of another client's method that it lacks, and the page's advice."""
    text = PAGE.read_text(encoding="utf-8")
    for heading, owner in HEADINGS.items():
        (section,) = re.findall(rf"^#+ {heading}\n(.*?)(?=^#+ |\Z)", text, re.M | re.S)
        for line in section.splitlines():
            cells = line.strip("|").split(" | ")
            for name in re.findall(r"`(\w+)`", cells[0]) if line.startswith("| `") else ():
                if owner in CLIENTS and not hasattr(owner, name):
                    yield owner, name, cells[1].strip()


ROWS = sorted(set(rows()), key=str)


def test_the_page_is_read() -> None:
    assert len(ROWS) > 60


@pytest.mark.parametrize(("owner", "name", "cell"), ROWS)
def test_each_method_of_the_page_that_is_missing_has_its_advice(
    owner: type, name: str, cell: str
) -> None:
    found = answer(owner, name) or ""
    if cell == "not yet":
        assert "not in this release" in found
    else:
        assert cell in found


@pytest.mark.parametrize("owner", CLIENTS)
def test_no_row_is_about_a_method_that_there_is(owner: type) -> None:
    assert not {name for name in TABLE[owner.__name__] if hasattr(owner, name)}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_method_of_another_client_gets_ours_as_advice(client: Any) -> None:
    class Own(client):  # type: ignore[misc]
        """A subclass of an application."""

    for one in (client, Own):
        with pytest.raises(AttributeError) as caught:
            one("localhost:9092").stop()
        text = str(caught.value)
        assert text.startswith(f"{one.__name__!r} object has no attribute 'stop': use `await ")
        assert text.endswith(".close()`")


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", ["nonsense", "_hidden", "__wrapped__"])
def test_any_other_name_gives_the_usual_error(client: Any, name: str) -> None:
    with pytest.raises(
        AttributeError, match=f"^'{client.__name__}' object has no attribute '{name}'$"
    ):
        getattr(client("localhost:9092"), name)


@pytest.mark.parametrize("client", CLIENTS)
def test_python_can_still_suggest_the_nearest_name(client: Any) -> None:
    one = client("localhost:9092")
    with pytest.raises(AttributeError) as caught:
        one.clsoe()
    assert (caught.value.name, caught.value.obj) == ("clsoe", one)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_that_is_only_half_made_does_not_recurse(client: Any) -> None:
    bare = client.__new__(client)
    for name in ("stop", "_core", "__deepcopy__"):
        assert not hasattr(bare, name)
    assert isinstance(copy.copy(bare), client)


@pytest.mark.parametrize("client", CLIENTS)
def test_tools_that_look_at_a_client_see_no_more_than_there_is(client: Any) -> None:
    assert "stop" not in dir(client) + dir(client("localhost:9092"))
    assert not hasattr(mock.Mock(spec=client), "stop")
    assert dict(inspect.getmembers(client("localhost:9092"))).keys().isdisjoint({"stop"})


def test_a_producer_looks_its_attributes_up_fast() -> None:
    assert not hasattr(Producer, "__getattr__")
