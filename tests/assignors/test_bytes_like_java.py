"""Subscriptions are written and read as Java's client does."""

from __future__ import annotations

import random

from kclient.errors import ProtocolError
from kclient.group.consumer_protocol import decode_subscription, encode_subscription
from kclient.hooks import MemberSubscription
from kclient.types import TopicPartition
from tests.assignors.java_side import ask, line, shown

SEEDS = 3_000


def _subscription(rng: random.Random) -> MemberSubscription:
    names = ["t1", "t10", "t2", "T", "Ünï", "\uff5e", "orders-eu"]
    parts = [TopicPartition(topic, number) for topic in names for number in (0, 1, 2, 77)]
    return MemberSubscription(
        rng.sample(names, rng.randrange(len(names))),
        rng.choice((None, b"", rng.randbytes(9))),
        rng.sample(parts, rng.choice((0, 1, 5, 12))),
        rng.choice((-1, 0, 7, 2**31 - 1)),
        rng.choice((None, "rack-a", "é")),
    )


def _fields(one: MemberSubscription) -> str:
    return line(",".join(one.topics), one.user_data, shown(one.owned), one.generation, one.rack)


def test_subscriptions_have_the_bytes_of_java() -> None:
    some = [_subscription(random.Random(seed)) for seed in range(SEEDS)]
    answers = ask(
        line(
            "subscription",
            ",".join(one.topics),
            one.user_data,
            shown(one.owned),
            one.generation,
            one.rack,
        )
        for one in some
    )
    assert [encode_subscription(one).hex() for one in some] == answers


def test_subscriptions_are_read_as_java_reads_them_and_refused_where_it_refuses() -> None:
    data = []
    for seed in range(SEEDS):
        rng = random.Random(seed)
        one = bytearray(encode_subscription(_subscription(rng)))
        one[1] = rng.choice((0, 1, 2, 3, 3, 4, 200))
        for _ in range(rng.choice((0, 0, 1, 3))):
            one[rng.randrange(len(one))] = rng.choice((0, 1, 2, 255, rng.randrange(256)))
        data.append(bytes(one[: rng.choice((len(one), rng.randrange(len(one))))]))
    differ = refused = 0
    for one, answer in zip(data, ask(line("read", one) for one in data), strict=True):
        try:
            ours = _fields(decode_subscription(one))
        except ProtocolError:
            # Java replaces invalid UTF-8 by U+FFFD, and reads a length of -2 as null.
            refused += answer.startswith("error\t")
            differ += not answer.startswith("error\t")
            continue
        assert ours == answer, one.hex()
    assert refused > SEEDS // 4
    assert differ < SEEDS // 20
