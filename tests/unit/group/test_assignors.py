"""What each assignor promises, on groups that fit on a line. ``tests/assignors`` plays Java's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from kclient.group.assignors import NAMES, chosen
from kclient.group.assignors.inputs import given_too_early
from kclient.group.assignors.sticky import encode_claim
from kclient.hooks import Assignor, MemberSubscription, TopicsView
from kclient.types import TopicPartition

Shares = Mapping[str, Sequence[TopicPartition]]


def assignor(name: str) -> Assignor:
    """A new assignor of that name."""
    return chosen([name])[0]


def parts(text: str) -> tuple[TopicPartition, ...]:
    """The partitions in a text such as ``t0 t1 u0``."""
    return tuple(TopicPartition(one[0], int(one[1:])) for one in text.split())


def view(racks: Mapping[str, str] | None = None, **counts: int) -> TopicsView:
    """Topics with their counts, and the racks of partitions, a letter each."""
    given = {part: frozenset(some) for name, some in (racks or {}).items() for part in parts(name)}
    return TopicsView(counts, given)


def wants(topics: str, **fields: object) -> MemberSubscription:
    """A member that wants these topics, a letter each."""
    return MemberSubscription(tuple(topics), **fields)  # type: ignore[arg-type]


def shown(shares: Shares) -> dict[str, str]:
    """Assignments as ``parts`` takes them."""
    return {
        member: " ".join(f"{part.topic}{part.partition}" for part in share)
        for member, share in sorted(shares.items())
    }


def test_range_gives_each_a_range_of_each_topic() -> None:
    members = {"b": wants("tu"), "a": wants("tu")}
    shares = assignor("range").assign(view(t=3, u=3), members)
    assert {member: set(share) for member, share in shares.items()} == {
        "a": set(parts("t0 t1 u0 u1")),
        "b": set(parts("t2 u2")),
    }


def test_range_puts_static_members_first_by_their_instance_id() -> None:
    members = {
        "a": wants("t"),
        "z": wants("t", instance_id="1"),
        "y": wants("t", instance_id="2"),
    }
    shares = assignor("range").assign(view(t=3), members)
    assert shown(shares) == {"a": "t2", "y": "t1", "z": "t0"}
    reborn = {"a": wants("t"), "m": wants("t", instance_id="1"), "y": members["y"]}
    assert shown(assignor("range").assign(view(t=3), reborn)) == {"a": "t2", "m": "t0", "y": "t1"}


def test_range_gives_partitions_to_members_of_their_racks_without_losing_balance() -> None:
    members = {"a": wants("t", rack="x"), "b": wants("t", rack="y"), "c": wants("t", rack="z")}
    racks = {"t0 t3": "z", "t1 t4": "y", "t2 t5": "x"}
    shares = assignor("range").assign(view(racks, t=6), members)
    assert shown(shares) == {"a": "t2 t5", "b": "t1 t4", "c": "t0 t3"}


def test_range_keeps_the_same_partition_of_alike_topics_together_rather_than_racks() -> None:
    members = {"a": wants("tu", rack="x"), "b": wants("tu", rack="y")}
    racks = {"t0": "y", "t1": "x", "u0": "x", "u1": "y"}
    shares = assignor("range").assign(view(racks, t=2, u=2), members)
    assert shown(shares) == {"a": "t0 u0", "b": "t1 u1"}
    racks = {"t0": "y", "t1": "x", "u0": "y", "u1": "x"}
    shares = assignor("range").assign(view(racks, t=2, u=2), members)
    assert shown(shares) == {"a": "t1 u1", "b": "t0 u0"}


def test_roundrobin_deals_partitions_out_like_cards() -> None:
    members = {"b": wants("ut"), "a": wants("tu")}
    shares = assignor("roundrobin").assign(view(t=3, u=3), members)
    assert shown(shares) == {"a": "t0 t2 u1", "b": "t1 u0 u2"}


def test_roundrobin_skips_those_that_want_something_else() -> None:
    members = {"a": wants("t"), "b": wants("tu"), "c": wants("tuv")}
    shares = assignor("roundrobin").assign(view(t=1, u=2, v=3), members)
    assert shown(shares) == {"a": "t0", "b": "u0", "c": "u1 v0 v1 v2"}


def test_sticky_leaves_partitions_where_they_are_when_a_member_goes() -> None:
    members = {
        "a": wants("tu", user_data=encode_claim(parts("t0 u1"), 3), generation=3),
        "b": wants("tu", user_data=encode_claim(parts("u0 t2"), 3), generation=3),
    }
    shares = assignor("sticky").assign(view(t=3, u=3), members)
    assert shown(shares) == {"a": "t0 u1 t1", "b": "u0 t2 u2"}


def test_sticky_believes_the_newer_of_two_that_claim_the_same() -> None:
    claims = {"a": parts("t0 t1"), "b": parts("t1 t2")}
    old, new = (
        {
            member: wants("t", user_data=encode_claim(claims[member], age), generation=age)
            for member, age in ages.items()
        }
        for ages in ({"a": 2, "b": 3}, {"a": 3, "b": 2})
    )
    assert shown(assignor("sticky").assign(view(t=4), old)) == {"a": "t0 t3", "b": "t1 t2"}
    assert shown(assignor("sticky").assign(view(t=4), new)) == {"a": "t0 t1", "b": "t2 t3"}


def test_sticky_moves_what_is_in_the_wrong_rack() -> None:
    members = {
        "a": wants("t", rack="x", user_data=encode_claim(parts("t0 t1"), 3), generation=3),
        "b": wants("t", rack="y", user_data=encode_claim(parts("t2 t3"), 3), generation=3),
    }
    racks = {"t0": "x", "t1": "y", "t2": "x", "t3": "y"}
    shares = assignor("sticky").assign(view(racks, t=4), members)
    assert shown(shares) == {"a": "t0 t2", "b": "t3 t1"}


def test_sticky_minds_racks_where_members_want_different_topics_too() -> None:
    members = {"a": wants("t", rack="x"), "b": wants("tu", rack="y")}
    racks = {"t0 t1": "y", "t2 t3": "x", "u0": "z"}
    shares = assignor("sticky").assign(view(racks, t=4, u=1), members)
    assert shown(shares) == {"a": "t2 t3", "b": "t0 t1 u0"}


def test_a_partition_assigned_before_it_is_revoked_is_found() -> None:
    members = {"a": wants("t", owned=parts("t0 t1 t2")), "b": wants("t", owned=parts("t3"))}
    early = {"a": parts("t0"), "b": parts("t1 t3")}
    assert given_too_early(members, early) == list(parts("t1"))
    in_time = {"a": parts("t0"), "b": parts("t3 t4")}
    assert given_too_early(members, in_time) == []
    assert given_too_early(members, {"b": parts("t2")}) == list(parts("t2"))


def test_sticky_has_no_user_data_before_its_first_assignment() -> None:
    one = assignor("sticky")
    assert one.user_data(("t",)) is None
    one.assigned([], 1)
    assert one.user_data(("t",)) == bytes.fromhex("00000000 00000001")


def test_sticky_has_the_user_data_of_java() -> None:
    one = assignor("sticky")
    orders = [TopicPartition("orders", 2), TopicPartition("orders", 0), TopicPartition("bills", 1)]
    one.assigned(orders, 5)
    data = one.user_data(("bills", "orders"))
    assert data is not None
    assert data.hex() == (
        "00000002000562696c6c73000000010000000100066f726465727300000002000000020000000000000005"
    )


def test_cooperative_sticky_has_its_generation_as_user_data() -> None:
    one = assignor("cooperative-sticky")
    assert one.user_data(()) == b"\xff\xff\xff\xff"
    one.assigned(parts("t0"), 5)
    assert one.user_data(()) == b"\0\0\0\5"


def test_cooperative_sticky_moves_a_partition_in_two_rounds() -> None:
    one = assignor("cooperative-sticky")
    members = {"a": wants("t", owned=parts("t0 t1 t2"), generation=3), "b": wants("t")}
    first = one.assign(view(t=3), members)
    assert shown(first) == {"a": "t0 t1", "b": ""}
    members = {
        "a": wants("t", owned=tuple(first["a"]), generation=4),
        "b": wants("t", owned=(), generation=4),
    }
    assert shown(one.assign(view(t=3), members)) == {"a": "t0 t1", "b": "t2"}


def test_cooperative_sticky_believes_old_members_their_user_data() -> None:
    one = assignor("cooperative-sticky")
    members = {
        "a": wants("t", owned=parts("t0 t1"), user_data=b"\0\0\0\2"),
        "b": wants("t", owned=parts("t1 t2"), user_data=b"\0\0\0\3"),
    }
    assert shown(one.assign(view(t=4), members)) == {"a": "t0 t3", "b": "t1 t2"}
    members["a"] = wants("t", owned=parts("t0 t1"), user_data=b"\0\0")
    assert shown(one.assign(view(t=4), members)) == {"a": "t0 t3", "b": "t1 t2"}


@pytest.mark.parametrize("name", NAMES)
def test_a_group_whose_topics_do_not_exist_gets_nothing(name: str) -> None:
    members = {"a": wants("t"), "b": wants("")}
    assert shown(assignor(name).assign(view(), members)) == {"a": "", "b": ""}


@pytest.mark.parametrize("name", NAMES)
def test_a_group_without_members_gets_nothing(name: str) -> None:
    assert assignor(name).assign(view(t=3), {}) == {}


@pytest.mark.parametrize("name", NAMES)
def test_topics_without_readers_and_topics_without_partitions_are_skipped(name: str) -> None:
    shares = assignor(name).assign(view(t=1, u=5, v=0), {"a": wants("tv")})
    assert shown(shares) == {"a": "t0"}
