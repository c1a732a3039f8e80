"""The assignments that the leader of a group sends, and those that it refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from kclient.consumer.leader_assignment import _shares
from kclient.errors import InvalidArgument
from kclient.group.consumer_protocol import decode_assignment
from kclient.hooks import MemberSubscription, TopicsView
from kclient.types import TopicPartition

A, B = (TopicPartition("t", index) for index in range(2))
VIEW = TopicsView({"t": 2}, {})


class Custom:
    """An application's assignor that returns what it is given."""

    name = "custom"

    def __init__(self, shares: Mapping[str, Sequence[TopicPartition]], *, cooperative: bool):
        self.shares = shares
        self.cooperative = cooperative

    def user_data(self, topics: object) -> bytes | None:
        return None

    def assign(self, cluster: object, members: object) -> Mapping[str, Sequence[TopicPartition]]:
        return self.shares

    def assigned(self, partitions: object, generation: int) -> None:
        pass


MEMBERS = {"one": MemberSubscription(("t",), owned=(A, B)), "two": MemberSubscription(("t",))}


def test_a_cooperative_assignor_may_not_assign_what_is_not_revoked_yet() -> None:
    with pytest.raises(InvalidArgument, match="t-1 would have two owners"):
        _shares(Custom({"one": [A], "two": [B]}, cooperative=True), VIEW, MEMBERS)


@pytest.mark.parametrize(
    ("shares", "cooperative"),
    [({"one": [A]}, True), ({"one": [A], "two": [B]}, False)],
    ids=["given up first", "eager"],
)
def test_all_else_is_sent_as_the_assignor_returns_it(
    shares: dict[str, list[TopicPartition]], cooperative: bool
) -> None:
    sent = _shares(Custom(shares, cooperative=cooperative), VIEW, MEMBERS)
    assert {member: decode_assignment(data) for member, data in sent.items()} == shares
