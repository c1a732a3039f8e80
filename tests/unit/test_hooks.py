"""The events and types that observers receive can be imported from hooks."""

from __future__ import annotations

import typing

import pytest

from kclient import events, hooks


def test_events_are_imported_from_hooks() -> None:
    names = [name for name, value in vars(events).items() if isinstance(value, type)]
    reported = [name for name in names if issubclass(getattr(events, name), events.Event)]
    assert len(reported) > 10
    for name in reported:
        assert getattr(hooks, name) is getattr(events, name)


def test_hints_of_what_observers_take_can_be_looked_up() -> None:
    assert typing.get_type_hints(hooks.Observer.observe)["event"] is hooks.Event


def test_there_is_nothing_else() -> None:
    with pytest.raises(AttributeError, match="TopicPartition"):
        hooks.TopicPartition  # noqa: B018
