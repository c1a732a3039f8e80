"""Pitfall 58: the claims of peers may be old, wrong or nonsense; the leader copes."""

from __future__ import annotations

import pytest

from kclient.group.assignors import NAMES, chosen
from kclient.group.assignors.sticky import encode_claim, read_claim
from kclient.group.consumer_protocol import decode_subscription, encode_subscription
from kclient.hooks import MemberSubscription
from kclient.types import TopicPartition
from tests.unit.group.test_assignors import assignor, parts, shown, view, wants

STICKY = ("sticky", "cooperative-sticky")


def owns(name: str, topics: str, owned: str, generation: int = 3) -> MemberSubscription:
    """A member that claims ``owned`` in the way that the assignor reads."""
    claimed = parts(owned)
    if name == "sticky":
        return wants(topics, user_data=encode_claim(claimed, generation), generation=generation)
    return wants(topics, owned=claimed, generation=generation)


@pytest.mark.parametrize("name", STICKY)
@pytest.mark.parametrize("others", ["t", "tu"])
def test_pitfall_58_partitions_that_do_not_exist_are_not_given_out(name: str, others: str) -> None:
    liar = owns(name, "t", "t-1 t0 t7 x0 t99")
    shares = assignor(name).assign(view(t=4, u=1), {"a": liar, "b": wants(others)})
    given_out = sorted(part for share in shares.values() for part in share)
    assert given_out == sorted(parts("t0 t1 t2 t3" + (" u0" if "u" in others else "")))


@pytest.mark.parametrize("name", STICKY)
@pytest.mark.parametrize(("old", "new"), [("a", "b"), ("b", "a")])
def test_pitfall_58_an_old_generation_loses_to_a_newer_one(name: str, old: str, new: str) -> None:
    members = {old: owns(name, "t", "t0 t1", 2), new: owns(name, "t", "t0 t1", 3)}
    shares = assignor(name).assign(view(t=4), members)
    assert set(shares[new]) == set(parts("t0 t1"))
    assert set(shares[old]) <= set(parts("t2 t3"))


def test_pitfall_58_what_two_claim_in_one_generation_goes_to_one_of_them() -> None:
    members = {"a": owns("sticky", "t", "t0 t1"), "b": owns("sticky", "t", "t0 t1 t0")}
    shares = assignor("sticky").assign(view(t=2), members)
    assert sorted(part for share in shares.values() for part in share) == list(parts("t0 t1"))


def test_pitfall_58_what_two_claim_in_one_generation_is_assigned_to_none_at_first() -> None:
    one = assignor("cooperative-sticky")
    members = {
        "a": owns(one.name, "t", "t0 t1"),
        "b": owns(one.name, "t", "t0 t2"),
    }
    assert shown(one.assign(view(t=3), members)) == {"a": "t1", "b": "t2"}


@pytest.mark.parametrize("name", STICKY)
@pytest.mark.parametrize("where", ["a", "z"])
def test_pitfall_58_a_member_that_wants_nothing_gets_nothing(name: str, where: str) -> None:
    # Java's assigns all topics to all members if it meets the one that wants nothing first.
    members = {where: wants(""), "b": wants("tu"), "c": wants("tu")}
    shares = assignor(name).assign(view(t=3, u=3), members)
    assert shares[where] == []
    assert [len(shares[member]) for member in "bc"] == [3, 3]


@pytest.mark.parametrize("name", STICKY)
def test_pitfall_58_a_topic_that_is_named_twice_counts_once(name: str) -> None:
    members = {"a": wants("tu"), "b": wants("tt"), "c": wants("tu")}
    shares = assignor(name).assign(view(t=2, u=4), members)
    assert all(part.topic == "t" for part in shares["b"])
    assert sorted(len(share) for share in shares.values()) == [2, 2, 2]


def test_pitfall_58_a_former_owner_gets_no_topic_back_that_it_does_not_want_now() -> None:
    members = {
        "a": owns("sticky", "u", "t0 t1", 1),
        "b": owns("sticky", "t", "t0 t1 t2 t3", 3),
        "c": owns("sticky", "t", "", 3),
        "d": owns("sticky", "u", "", 3),
    }
    shares = assignor("sticky").assign(view(t=4, u=2), members)
    assert [set(shares[member]) for member in "ad"] in (
        [set(parts("u0")), set(parts("u1"))],
        [set(parts("u1")), set(parts("u0"))],
    )
    assert [len(shares[member]) for member in "bc"] == [2, 2]


def test_a_former_owner_is_preferred_where_something_must_move() -> None:
    members = {
        "a": owns("sticky", "tu", "t0", 1),
        "b": owns("sticky", "t", "t0 t1 t2 t3", 3),
        "c": owns("sticky", "t", "", 3),
    }
    shares = assignor("sticky").assign(view(t=4, u=1), members)
    assert TopicPartition("t", 0) in shares["a"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"\x7f\xff\xff\xff",
        b"\0\0\0\1\x7f\xff",
        b"\0\0\0\1\xff\xff\0\0\0\0",
        b"\0\0\0\1\0\1t\x7f\xff\xff\xff",
        encode_claim(parts("t0 t1"), 3)[:-5],
        b"\0\0\0\1\0\1\xff\0\0\0\1\0\0\0\0\0\0\0\1",
    ],
)
def test_pitfall_58_user_data_that_can_not_be_read_claims_nothing(data: bytes) -> None:
    member = wants("t", user_data=data)
    assert [part for part in read_claim(member).partitions if part.topic == "t"] == []
    shares = assignor("sticky").assign(view(t=2), {"a": member, "b": wants("t")})
    assert sorted(len(share) for share in shares.values()) == [1, 1]


def test_pitfall_58_user_data_of_an_old_member_names_no_generation() -> None:
    claim = read_claim(wants("t", user_data=encode_claim(parts("t0"), 7)[:-4]))
    assert (list(claim.partitions), claim.generation) == (list(parts("t0")), None)


@pytest.mark.parametrize("name", NAMES)
def test_pitfall_58_two_members_with_one_instance_id_share(name: str) -> None:
    members = {"a": wants("t", instance_id="i"), "b": wants("t", instance_id="i")}
    shares = assignor(name).assign(view(t=4), members)
    assert [len(share) for share in shares.values()] == [2, 2]


def test_a_generation_from_the_future_does_no_harm_later() -> None:
    (one,) = chosen(["sticky"])
    one.assign(view(t=2, u=1), {"a": owns("sticky", "t", "t0", 2**31 - 1), "b": wants("tu")})
    members = {
        "a": owns("sticky", "t", "t0", 4),
        "b": owns("sticky", "tu", "t1 u0", 4),
    }
    assert shown(one.assign(view(t=2, u=1), members)) == {"a": "t0", "b": "t1 u0"}


@pytest.mark.parametrize("name", NAMES)
def test_ten_thousand_partitions_are_assigned_to_a_hundred_members(name: str) -> None:
    topics = [f"topic-{number}" for number in range(1_000)]
    members = {
        f"consumer-{number}": decode_subscription(
            encode_subscription(MemberSubscription(topics if number else topics[:500]))
        )
        for number in range(100)
    }
    shares = assignor(name).assign(view(**dict.fromkeys(topics, 10)), members)
    assert len({part for share in shares.values() for part in share}) == 10_000
    assert sum(map(len, shares.values())) == 10_000
    if name in STICKY:
        assert {len(share) for share in shares.values()} == {100}


def test_ten_thousand_partitions_of_one_member_go_to_a_hundred() -> None:
    topics = [f"topic-{number}" for number in range(1_000)]
    everything = [TopicPartition(topic, number) for topic in topics for number in range(10)]
    first = MemberSubscription(topics, encode_claim(everything, 1), generation=1)
    members = {f"consumer-{number}": MemberSubscription(topics[number:]) for number in range(100)}
    shares = assignor("sticky").assign(
        view(**dict.fromkeys(topics, 10)), {**members, "consumer-0": first}
    )
    assert {len(share) for share in shares.values()} == {100}
