"""What holds of every assignment: one owner each, balance, stickiness; and no input is too odd."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kclient.group.assignors import NAMES, chosen
from kclient.group.assignors.sticky import encode_claim
from kclient.hooks import Assignor, MemberSubscription, TopicsView
from kclient.types import TopicPartition

TOPICS = ("t", "u", "v", "orders", "T")
RACKS = ("x", "y", "z")
STICKY = ("sticky", "cooperative-sticky")

Members = Mapping[str, MemberSubscription]
Shares = Mapping[str, Sequence[TopicPartition]]

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 7))
ids = st.text("abcAB1-é", min_size=1, max_size=6)
racks = st.none() | st.sampled_from(RACKS)
wishes = st.lists(st.sampled_from((*TOPICS, "unknown")), min_size=1, unique=True).map(tuple)
owned = st.lists(
    st.builds(TopicPartition, st.sampled_from((*TOPICS, "gone")), st.integers(-2, 9)), max_size=8
).map(tuple)
generations = st.integers(-1, 4) | st.just(2**31 - 1)
odd_members = st.builds(
    MemberSubscription,
    st.lists(st.sampled_from((*TOPICS, "unknown")), max_size=6).map(tuple),
    st.none()
    | st.binary(max_size=30)
    | st.builds(encode_claim, owned, st.integers(-(2**31), 2**31 - 1)),
    owned,
    generations,
    racks,
    st.none() | st.sampled_from(("i1", "i2")),
)


@st.composite
def views(draw: st.DrawFn) -> TopicsView:
    """Topics, with racks or without."""
    found = draw(counts)
    everything = [
        TopicPartition(topic, one) for topic, some in found.items() for one in range(some)
    ]
    places = st.frozensets(st.sampled_from(RACKS), min_size=1)
    known = draw(st.booleans())
    return TopicsView(found, {part: draw(places) for part in everything} if known else {})


@st.composite
def plain_members(draw: st.DrawFn, *, alike: bool) -> Members:
    """Members of a new group."""
    found = draw(st.lists(ids, min_size=1, max_size=7, unique=True))
    common = draw(wishes)
    return {
        member: MemberSubscription(common if alike else draw(wishes), rack=draw(racks))
        for member in found
    }


def wanted(view: TopicsView, members: Members) -> set[TopicPartition]:
    """Partitions that exist and that a member wants."""
    topics = {topic for member in members.values() for topic in member.topics}
    return {
        TopicPartition(topic, one) for topic in topics for one in range(view.counts.get(topic, 0))
    }


def check_owners(view: TopicsView, members: Members, shares: Shares, *, all_given: bool) -> None:
    """Each partition has one owner, that wants it."""
    given_out = Counter(part for share in shares.values() for part in share)
    assert shares.keys() == members.keys()
    assert all(times == 1 for times in given_out.values())
    assert given_out.keys() <= wanted(view, members)
    assert not all_given or given_out.keys() == wanted(view, members)
    for member, share in shares.items():
        assert all(part.topic in members[member].topics for part in share)


def remembering(members: Members, shares: Shares, one: Assignor) -> Members:
    """The same members in the next round, in generation 1."""
    return {
        member: MemberSubscription(
            wish.topics,
            encode_claim(shares[member], 1) if one.name == "sticky" else None,
            tuple(shares[member]) if one.cooperative else (),
            1,
            wish.rack,
        )
        for member, wish in members.items()
    }


def sizes(shares: Shares) -> list[int]:
    """How many partitions members have."""
    return [len(share) for share in shares.values()]


@pytest.mark.parametrize("name", NAMES)
@given(views(), st.booleans().flatmap(lambda alike: plain_members(alike=alike)))
def test_each_partition_of_a_new_group_has_one_owner_that_wants_it(
    name: str, view: TopicsView, members: Members
) -> None:
    check_owners(view, members, chosen([name])[0].assign(view, members), all_given=True)


@pytest.mark.parametrize("name", NAMES)
@given(views(), st.lists(st.dictionaries(ids, odd_members, max_size=6), min_size=1, max_size=3))
def test_no_input_makes_an_assignor_fail_or_give_a_partition_twice(
    name: str, view: TopicsView, rounds: list[Members]
) -> None:
    (one,) = chosen([name])
    for members in rounds:
        shares = one.assign(view, members)
        check_owners(view, members, shares, all_given=not one.cooperative)
        claimed = {part for member in members.values() for part in member.owned}
        given_out = {part for share in shares.values() for part in share}
        assert wanted(view, members) - given_out <= claimed


@pytest.mark.parametrize("name", NAMES)
@given(views(), st.dictionaries(ids, odd_members, max_size=6), st.randoms(use_true_random=False))
def test_the_order_in_which_the_coordinator_lists_the_members_changes_nothing(
    name: str, view: TopicsView, members: Members, rng: random.Random
) -> None:
    shuffled = list(members.items())
    rng.shuffle(shuffled)
    expected = chosen([name])[0].assign(view, members)
    assert chosen([name])[0].assign(view, dict(shuffled)) == expected


@pytest.mark.parametrize("name", ["roundrobin", *STICKY])
@given(views(), plain_members(alike=True))
def test_members_that_want_the_same_get_the_same_number_but_for_one(
    name: str, view: TopicsView, members: Members
) -> None:
    shares = chosen([name])[0].assign(view, members)
    assert max(sizes(shares)) - min(sizes(shares)) <= 1


@given(views(), plain_members(alike=True))
def test_range_assigns_each_topic_evenly(view: TopicsView, members: Members) -> None:
    shares = chosen(["range"])[0].assign(view, members)
    for topic in view.counts:
        each = [sum(part.topic == topic for part in share) for share in shares.values()]
        assert max(each) - min(each) <= 1


@given(views(), plain_members(alike=True))
def test_range_gives_the_same_partitions_of_topics_of_one_size_to_one_member(
    view: TopicsView, members: Members
) -> None:
    without_racks = TopicsView(dict.fromkeys(view.counts, 5), {})
    shares = chosen(["range"])[0].assign(without_racks, members)
    for share in shares.values():
        of_topic = {part.topic: set[int]() for part in share}
        for part in share:
            of_topic[part.topic].add(part.partition)
        assert len({frozenset(some) for some in of_topic.values()}) <= 1


@pytest.mark.parametrize("name", STICKY)
@given(views(), plain_members(alike=False))
def test_no_single_move_would_make_a_new_group_more_even(
    name: str, view: TopicsView, members: Members
) -> None:
    shares = chosen([name])[0].assign(view, members)
    for share in shares.values():
        for topic in {part.topic for part in share}:
            for other, wish in members.items():
                assert topic not in wish.topics or len(shares[other]) >= len(share) - 1


@pytest.mark.parametrize("name", STICKY)
@given(views(), st.booleans().flatmap(lambda alike: plain_members(alike=alike)))
def test_nothing_moves_where_nothing_changed(name: str, view: TopicsView, members: Members) -> None:
    without_racks = TopicsView(view.counts, {})
    (one,) = chosen([name])
    first = one.assign(without_racks, members)
    again = one.assign(without_racks, remembering(members, first, one))
    assert {member: set(share) for member, share in again.items()} == {
        member: set(share) for member, share in first.items()
    }


@pytest.mark.parametrize("name", STICKY)
@given(views(), plain_members(alike=True))
def test_members_keep_what_they_have_when_one_leaves(
    name: str, view: TopicsView, members: Members
) -> None:
    without_racks = TopicsView(view.counts, {})
    (one,) = chosen([name])
    first = one.assign(without_racks, members)
    left = dict(list(remembering(members, first, one).items())[1:])
    second = one.assign(without_racks, left)
    for member in left:
        assert set(first[member]) <= set(second[member])


@pytest.mark.parametrize("name", STICKY)
@given(views(), plain_members(alike=True))
def test_partitions_move_to_a_new_member_only(
    name: str, view: TopicsView, members: Members
) -> None:
    without_racks = TopicsView(view.counts, {})
    (one,) = chosen([name])
    first = one.assign(without_racks, members)
    (wish, *_) = members.values()
    more = {**remembering(members, first, one), "new": MemberSubscription(wish.topics)}
    second = one.assign(without_racks, more)
    for member in members:
        assert set(second[member]) <= set(first[member])


@given(views(), plain_members(alike=False), plain_members(alike=False))
def test_cooperative_members_get_nothing_that_another_one_has_and_all_of_it_soon(
    view: TopicsView, before: Members, after: Members
) -> None:
    (one,) = chosen(["cooperative-sticky"])
    had = remembering(before, one.assign(view, before), one)
    now = {
        member: MemberSubscription(
            wish.topics,
            owned=tuple(
                part
                for part in (had[member].owned if member in had else ())
                if part.topic in wish.topics
            ),
            generation=1 if member in had else -1,
            rack=wish.rack,
        )
        for member, wish in after.items()
    }
    owner = {part: member for member, wish in now.items() for part in wish.owned}
    shares = one.assign(view, now)
    check_owners(view, now, shares, all_given=False)
    for member, share in shares.items():
        assert all(owner.get(part, member) == member for part in share)
    check_owners(view, now, one.assign(view, remembering(now, shares, one)), all_given=True)
