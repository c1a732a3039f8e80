"""What ``Membership`` asks of whom it serves: a group of consumers, or a user's own protocol.

Values and an interface only. ``consumer.handover`` and ``group.user_protocol`` implement it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from kclient.frozen import Frozen, frozen

if TYPE_CHECKING:
    from kclient.errors import KafkaError

MOST_BYTES = 96 * 2**20
"""Bytes of a member's metadata, or of all shares together. Brokers close the connection on a
request over ``socket.request.max.bytes``, 100 MiB by default; the rest of that is for names."""


@frozen
class Generation(Frozen):
    """Who we are in a group, as the coordinator knows us.

    Each rebalance begins a new one; commits carry the one that their records were read under, so
    that the coordinator can refuse whoever was left behind.

    Attributes:
        generation_id: Its number.
        member_id: Ours, given by the coordinator.
        instance_id: Our ``group_instance_id``; None for a dynamic member.
        protocol: What the members agreed on.
        is_leader: Whether we assign.
    """

    generation_id: int
    member_id: str
    instance_id: str | None = None
    protocol: str = ""
    is_leader: bool = False


OUTSIDE = Generation(-1, "")
"""Stands for no membership, as for commits of whoever assigns by hand."""


@frozen
class Offer(Frozen):
    """A protocol that a member would speak, and its metadata, for JoinGroup."""

    name: str
    metadata: bytes


@frozen
class JoinedMember(Frozen):
    """A member as the leader is told of it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class MembershipHost(Protocol):
    """Whom a membership serves. All calls come from the membership's one task, one at a time.

    None may raise: what a user's listener or assignor raises is for the user's next call.
    """

    protocol_type: str
    """The same for all members of a group, such as ``consumer``."""

    def offers(self) -> Sequence[Offer]:
        """What to offer in the JoinGroup that is sent now, in order of preference."""

    async def prepare(self, deadline: float) -> None:
        """A rebalance begins: give up what must be given up before the group is joined again.

        Heartbeats go on meanwhile. Past ``deadline``, on the client's clock, the others don't wait
        any longer.
        """

    def interrupt(self) -> None:
        """The generation is over: ``prepare``, ``assigned`` or ``leaving`` waits in vain."""

    async def assign(
        self, protocol: str, members: Sequence[JoinedMember], generation: Generation
    ) -> Mapping[str, bytes] | KafkaError:
        """We lead: what each member gets, by member id; an error where that can't be said.

        More than ``MOST_BYTES`` in all count as such an error.

        The order of ``members`` is the coordinator's. One that is left out gets no bytes.
        """

    async def assigned(self, generation: Generation, assignment: bytes) -> KafkaError | None:
        """The rebalance is over, and this is ours.

        An error where nothing can be done with it: the group is joined again after a while, which
        grows each time.
        """

    def hurry(self, deadline: float) -> None:
        """``Membership.close`` came: what ``prepare`` and ``assigned`` wait for has no longer than
        ``deadline``. Afterwards, ``leaving`` is called."""

    async def leaving(self, deadline: float) -> None:
        """No rebalance comes any more, and we are a member still: give up everything, which others
        are waited for until ``deadline``. The group is left a while later, whatever comes."""

    async def lost(self, error: KafkaError) -> None:
        """We are no member any more: what was ours is, or may be, another's by now."""

    def troubled(self, error: KafkaError) -> None:
        """It can't be a member for now, and is tried again after a while. For the user's next call,
        which it is no harm to tell only the first of several."""

    def failed(self, error: KafkaError) -> None:
        """It will never be a member: nothing is tried any more. For the user's next call."""
