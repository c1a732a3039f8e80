"""The setting becomes assignors, or an error that names what is wrong with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest

from kclient.errors import InvalidConfig
from kclient.group.assignors import NAMES, chosen, is_cooperative
from kclient.hooks import MemberSubscription, TopicsView
from kclient.types import TopicPartition


class Own:
    """An application's assignor."""

    name: object = "own"
    cooperative: object = True

    def user_data(self, topics: Collection[str]) -> bytes | None:
        return None

    def assign(
        self, cluster: TopicsView, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        return {}

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        pass


def test_names_become_assignors_in_the_same_order() -> None:
    assert [one.name for one in chosen(NAMES)] == list(NAMES)
    assert [one.name for one in chosen(["sticky", "range"])] == ["sticky", "range"]


def test_each_consumer_gets_its_own() -> None:
    assert chosen(["sticky"])[0] is not chosen(["sticky"])[0]


def test_a_users_assignor_is_taken_as_it_is() -> None:
    own = Own()
    assert chosen(["range", own])[1] is own  # type: ignore[list-item]


def test_a_member_is_cooperative_if_all_its_assignors_can_be() -> None:
    assert is_cooperative(chosen(["cooperative-sticky"]))
    assert is_cooperative(chosen([Own(), "cooperative-sticky"]))  # type: ignore[list-item]
    for eager in ("range", "roundrobin", "sticky"):
        assert not is_cooperative(chosen([eager]))
        assert not is_cooperative(chosen(["cooperative-sticky", eager]))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("rnage", "range"),
        ("RoundRobin", "roundrobin"),
        ("cooperative_sticky", "cooperative-sticky"),
        ("org.apache.kafka.clients.consumer.StickyAssignor", "sticky"),
        ("CooperativeStickyAssignor", "cooperative-sticky"),
    ],
)
def test_an_unknown_name_is_refused_with_what_was_meant(name: str, meant: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        chosen([name])
    assert str(refused.value) == (
        f"partition_assignment_strategy holds {name!r}: allowed is range, roundrobin, sticky, "
        "cooperative-sticky, or an object such as hooks.Assignor describes "
        f"(did you mean {meant!r}?)"
    )


def test_a_name_like_no_other_is_refused_without_a_guess() -> None:
    with pytest.raises(InvalidConfig, match=r"holds 'zzz': allowed is range.*describes$"):
        chosen(["zzz"])


def test_the_same_name_twice_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="holds 'range' twice"):
        chosen(["range", "sticky", "range"])


def test_no_assignor_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="holds nothing"):
        chosen([])


@pytest.mark.parametrize("method", ["assign", "user_data", "assigned"])
def test_an_object_without_a_method_is_refused(method: str) -> None:
    own = Own()
    setattr(own, method, None)
    with pytest.raises(InvalidConfig, match=rf"needs a method {method}\(\)"):
        chosen([own])  # type: ignore[list-item]


def test_a_class_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="class Own: give an instance"):
        chosen([Own])  # type: ignore[list-item]


@pytest.mark.parametrize(("field", "value"), [("name", ""), ("name", 5), ("cooperative", "yes")])
def test_an_object_with_a_field_of_the_wrong_kind_is_refused(field: str, value: object) -> None:
    own = Own()
    setattr(own, field, value)
    with pytest.raises(InvalidConfig, match=f"with {field}={value!r}: allowed is"):
        chosen([own])  # type: ignore[list-item]
