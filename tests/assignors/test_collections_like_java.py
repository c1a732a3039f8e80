"""``HashOrder`` gives keys in the order of Java's HashMap."""

from __future__ import annotations

import itertools
import random

from kclient.group.assignors.java_order import (
    HashOrder,
    java_hash,
    partition_hash,
    sorted_texts,
)
from tests.assignors.java_side import ask, line

SEEDS = 2_000
COLLIDING = ["".join(pairs) for pairs in itertools.product(("Aa", "BB"), repeat=4)]
"""The same hash code, all of them."""
FEW, MANY = 4, 9
"""How many of them a large table takes, and how many a table of 16, before it makes a tree."""


def _names(rng: random.Random, *, crowded: bool) -> list[str]:
    if crowded:
        return [*rng.sample(COLLIDING, MANY), "t", "orders-:1"]
    count = rng.choice((3, 12, 13, 14, 30, 70))
    beginnings = ("t", "é", "orders-", "\U0001f600")
    names = {f"{rng.choice(beginnings)}{rng.randrange(400)}" for _ in range(count)}
    names |= {f"{rng.choice(beginnings)}:{rng.randrange(300)}" for _ in range(count)}
    return [*sorted(names), *rng.sample(COLLIDING, rng.choice((0, 3, FEW)))]


def _code(name: str) -> int:
    topic, colon, partition = name.partition(":")
    return partition_hash(java_hash(topic), int(partition)) if colon else java_hash(name)


def test_keys_come_in_the_order_of_a_hash_map() -> None:
    lines, ours = [], []
    for seed in range(SEEDS):
        rng = random.Random(seed)
        crowded = seed % 10 == 0
        names = _names(rng, crowded=crowded)
        capacity = 16 if crowded else rng.choice((0, 1, 2, 5, 16, 16, 17, 64))
        order = HashOrder[str](capacity)
        ways = rng.choice(("+", "?") if crowded else ("+", "?", "+?"))
        held: set[str] = set()
        steps = []
        for _ in range(rng.choice((5, 20, 100, 200))):
            if held and not crowded and rng.random() < 0.2:
                name = rng.choice(sorted(held))
                held.discard(name)
                order.remove(name, _code(name))
                steps.append(f"-{name}")
                continue
            name = rng.choice(names)
            way = rng.choice(ways)
            held.add(name)
            (order.put if way == "+" else order.compute)(name, _code(name))
            steps.append(f"{way}{name}")
        assert len(order) == len(held)
        assert not held or order.first() == order.keys()[0]
        lines.append(line("keys", capacity, ",".join(steps)))
        ours.append(",".join(order.keys()))
    assert ask(lines) == ours


def test_texts_are_sorted_by_their_utf_16_units() -> None:
    assert sorted_texts(["\U0001f600", "\uff5e", "b", "a"]) == ["a", "b", "\U0001f600", "\uff5e"]
