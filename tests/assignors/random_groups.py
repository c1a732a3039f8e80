"""Random consumer groups that rebalance: the input of the leader's assignor, round by round.

A group has members of any kind (static, in racks, of old releases, some with false claims). They
join and leave, miss rebalances and change subscriptions, while topics are created, grow and are
deleted. The members own what the assignor returned in the next round.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from kclient.group.assignors import chosen
from kclient.group.assignors.sticky import encode_claim
from kclient.group.consumer_protocol import decode_assignment, encode_assignment
from kclient.hooks import Assignor, TopicsView
from kclient.protocol.messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from kclient.types import TopicPartition

RACKS = ("a", "b", "c", "rack-4")
_TOPIC_NAMES = ("t{}", "orders.{}", "{}", "payments-eu_{}-compacted", "AaBB{}", "T{}")
_CLIENTS = ("c", "consumer-1", "é-{}", "\uff5e{}", "billing-{}", "AaAa", "BBBB")


@dataclass
class Member:
    """A member as the coordinator knows it, and what it knows itself.

    Attributes:
        version: Of the subscriptions that it writes.
        owned: What it got when it was last in a round.
        generation: That round.
    """

    member_id: str
    instance_id: str | None
    rack: str | None
    topics: tuple[str, ...]
    version: int
    assignor: Assignor
    owned: list[TopicPartition] = field(default_factory=list)
    generation: int = -1


class Round(NamedTuple):
    """One rebalance.

    Attributes:
        assignor: The leader's.
        new_leader: Whether it is another one than in the round before.
        topics: Name -> the racks of each partition.
        members: Id -> instance id and the bytes of its subscription, in the coordinator's order.
        generation: Of the group, after it.
    """

    assignor: Assignor
    new_leader: bool
    topics: dict[str, list[tuple[str, ...]]]
    members: dict[str, tuple[str | None, bytes]]
    generation: int

    @property
    def view(self) -> TopicsView:
        """The topics as an assignor is given them."""
        counts = {topic: len(racks) for topic, racks in self.topics.items()}
        racks = {
            TopicPartition(topic, index): frozenset(some)
            for topic, all_racks in self.topics.items()
            for index, some in enumerate(all_racks)
            if some
        }
        return TopicsView(counts, racks)


class RandomGroup:
    """A group of consumers.

    Args:
        strategy: The name of the assignor.
        seed: Of everything random.
        honest: Whether no member may send false or malformed claims.
    """

    def __init__(self, strategy: str, seed: int, *, honest: bool) -> None:
        self.members: list[Member] = []
        self._rng = rng = random.Random(f"{strategy} {seed} {honest}")
        self._strategy = strategy
        self._honest = honest
        self._generation = rng.choice((0, 0, 7, 2**31 - 50))
        self._topics: dict[str, list[tuple[str, ...]]] = {}
        self._most_partitions = rng.choice((1, 3, 8, 8, 20))
        self._racks = rng.choice((0, 0, 0.5, 1))
        self._alike = rng.random() < 0.5
        self._static = rng.choice((0, 0, 0.5, 1))
        self._old = rng.choice((0, 0, 0.3))
        for _ in range(rng.choice((1, 2, 3, 5, 8, 14, 26))):
            self._new_topic()
        self._common = self._some_topics()
        for _ in range(rng.choice((1, 2, 3, 4, 6, 9, 14, 27))):
            self._join()
        self._leader: Assignor | None = None

    def rounds(self, count: int) -> Iterator[Round]:
        """Yield rebalances; call ``finish`` with each result before asking for the next one."""
        for number in range(count):
            if number:
                for _ in range(self._rng.choice((0, 1, 1, 2, 4))):
                    self._happen()
            new_leader = self._leader is None or self._rng.random() < 0.2
            if new_leader or self._leader is None:
                (self._leader,) = chosen([self._strategy])
            self._generation = min(self._generation + 1, 2**31 - 1)
            self._rng.shuffle(self.members)
            spoken = {}
            for member in self.members:
                message = self._subscription(member)
                if not self._honest and self._rng.random() < 0.3:
                    self._lie(message, member)
                data = member.version.to_bytes(2, "big") + message.encode(min(member.version, 3))
                spoken[member.member_id] = (member.instance_id, data)
            yield Round(self._leader, new_leader, self._topics.copy(), spoken, self._generation)

    def finish(self, shares: dict[str, list[TopicPartition]]) -> None:
        """Members learn what they got; some don't, since they miss the end of the round."""
        for member in self.members:
            if self._rng.random() < 0.05:
                continue
            member.owned = decode_assignment(encode_assignment(shares.get(member.member_id, ())))
            member.generation = self._generation
            member.assignor.assigned(member.owned, self._generation)

    def _subscription(self, member: Member) -> ConsumerProtocolSubscription:
        owned = member.owned if member.assignor.cooperative else []
        message = ConsumerProtocolSubscription(
            sorted(member.topics), member.assignor.user_data(member.topics)
        )
        if member.version >= 1:
            message.owned_partitions = _grouped(owned)
        if member.version >= 2:
            message.generation_id = member.generation
        if member.version >= 3:
            message.rack_id = member.rack
        return message

    def _happen(self) -> None:
        """Something between two rounds."""
        joins, leaves = (self._join, self._join), (self._leave, self._restart, self._forget)
        topics = (self._new_topic, self._grow, self._drop_topic, self._change_mind)
        happening = self._rng.choice((*joins, *leaves, *topics))
        happening()

    def _join(self) -> None:
        rng = self._rng
        number = rng.randrange(1000)
        suffix = "".join(rng.choices("0123456789abcdef", k=8))
        member_id = f"{rng.choice(_CLIENTS).format(number)}-{suffix}"
        instance_id = f"i{rng.randrange(10**6)}" if rng.random() < self._static else None
        rack = rng.choice(RACKS) if rng.random() < self._racks else None
        version = rng.choice((0, 1, 2, 3, 4)) if rng.random() < self._old else 3
        (assignor,) = chosen([self._strategy])
        topics = self._common if self._alike else self._some_topics()
        self.members.append(Member(member_id, instance_id, rack, topics, version, assignor))

    def _leave(self) -> None:
        if len(self.members) > 1:
            self.members.pop(self._rng.randrange(len(self.members)))

    def _restart(self) -> None:
        """A member comes back with another id, and without its state."""
        member = self._rng.choice(self.members)
        member.member_id += "'"
        member.owned, member.generation = [], -1
        (member.assignor,) = chosen([self._strategy])

    def _forget(self) -> None:
        """A member that was fenced lost what it owned."""
        member = self._rng.choice(self.members)
        member.owned, member.generation = [], -1

    def _change_mind(self) -> None:
        self._alike = self._alike and self._rng.random() < 0.7
        if self._alike:
            self._common = self._some_topics()
            for member in self.members:
                member.topics = self._common
        else:
            self._rng.choice(self.members).topics = self._some_topics()

    def _some_topics(self) -> tuple[str, ...]:
        known = [*self._topics, "unknown"]
        least = 1 if self._honest else 0
        found = self._rng.sample(known, self._rng.randint(least, len(known)))
        return tuple(found)

    def _new_topic(self) -> None:
        name = self._rng.choice(_TOPIC_NAMES).format(self._rng.randrange(40))
        if name not in self._topics:
            count = self._rng.randint(1, self._most_partitions)
            self._topics[name] = [self._replicas() for _ in range(count)]

    def _grow(self) -> None:
        if self._topics:
            topic = self._rng.choice(list(self._topics))
            more = [self._replicas() for _ in range(self._rng.randint(1, 4))]
            self._topics[topic] = self._topics[topic] + more

    def _drop_topic(self) -> None:
        if self._topics:
            del self._topics[self._rng.choice(list(self._topics))]

    def _replicas(self) -> tuple[str, ...]:
        if not self._racks:
            return ()
        return tuple(self._rng.sample(RACKS, self._rng.choice((0, 1, 2, 2, 3, 4))))

    def _lie(self, message: ConsumerProtocolSubscription, member: Member) -> None:
        """Make a member claim what another one owns or what doesn't exist, or send bad data."""
        rng = self._rng
        numbers = rng.choice(((0, 1), (0, 1, 2), (-1, 0, 3, 99)))
        parts = [
            TopicPartition(topic, rng.choice(numbers))
            for topic in rng.choices([*self._topics, "gone"], k=rng.randint(1, 6))
        ]
        generation = rng.choice((-(2**31), -1, 0, self._generation - 1, self._generation))
        claim = encode_claim(parts, generation)
        message.user_data = rng.choice(
            (claim, claim[:-4], claim[: rng.randrange(len(claim))], b"", b"\xff" * 9, claim + b"x")
        )
        if member.version >= 1:
            message.owned_partitions = _grouped(parts)
        if member.version >= 2 and rng.random() < 0.5:
            message.generation_id = generation
        if rng.random() < 0.1:
            message.topics = message.topics * 2


def _grouped(
    parts: list[TopicPartition],
) -> list[ConsumerProtocolSubscriptionTopicPartition]:
    return [
        ConsumerProtocolSubscriptionTopicPartition(topic, [partition]) for topic, partition in parts
    ]
