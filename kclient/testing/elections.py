"""Rules for leaders and ISRs: how a partition's facts change with brokers and elections.

Each function takes a partition's facts and returns the next ones, the same object if nothing
changes. Used by ``controller.py`` alone. KIP-966's eligible leader replicas included: below
``min.insync.replicas`` replicas that leave the ISR stay eligible: they have all committed records.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from kclient.testing.image import NO_LEADER, PartitionFacts
from kclient.testing.topic_configs import TopicConfig


def broker_gone(
    facts: PartitionFacts, node_id: int, alive: Collection[int], config: TopicConfig
) -> PartitionFacts:
    """A broker is down: remove it from the ISR, and elect another leader if it led."""
    if node_id not in facts.isr and facts.leader != node_id:
        return facts
    changed = facts
    if node_id in facts.isr:
        last = (facts.leader,) if len(facts.isr) == 1 else facts.last_known_elr
        isr = tuple(one for one in facts.isr if one != node_id)
        changed = replace(with_isr(facts, isr, config), last_known_elr=last if not isr else ())
    if changed.leader == node_id:
        changed = elect(changed, alive, config)
    return changed


def broker_back(
    facts: PartitionFacts, node_id: int, alive: Collection[int], config: TopicConfig
) -> PartitionFacts:
    """A broker is up: elect a leader if its partition has none, among all that are up."""
    if facts.leader != NO_LEADER or node_id not in facts.replicas:
        return facts
    return elect(facts, alive, config)


def elect(facts: PartitionFacts, alive: Collection[int], config: TopicConfig) -> PartitionFacts:
    """Elect the first live replica in sync, else an eligible one, else unclean if allowed."""
    for one in facts.replicas:
        if one in facts.isr and one in alive:
            return lead(facts, one)
    for one in facts.replicas:
        if one in facts.elr and one in alive:
            return lead(with_isr(facts, (one,), config), one)
    if config.unclean_elections and any(one in alive for one in facts.replicas):
        return elect_unclean(facts, alive)
    return facts if facts.leader == NO_LEADER else lead(facts, NO_LEADER)


def elect_unclean(facts: PartitionFacts, alive: Collection[int]) -> PartitionFacts:
    """Elect the first live replica, whatever records it has; the same facts if there is none."""
    for one in facts.replicas:
        if one in alive:
            alone = replace(facts, isr=(one,), elr=(), last_known_elr=())
            return lead(alone, one)
    return facts


def lead(facts: PartitionFacts, leader: int) -> PartitionFacts:
    """Set the leader, or NO_LEADER, in a new epoch."""
    return replace(
        facts,
        leader=leader,
        leader_epoch=facts.leader_epoch + 1,
        partition_epoch=facts.partition_epoch + 1,
    )


def with_isr(facts: PartitionFacts, isr: tuple[int, ...], config: TopicConfig) -> PartitionFacts:
    """Set the ISR, and the eligible leader replicas that follow from it."""
    known = {*facts.isr, *facts.elr}
    changed = replace(facts, isr=isr, partition_epoch=facts.partition_epoch + 1)
    elr: tuple[int, ...] = ()
    if not changed.has_min_isr(config):
        elr = tuple(one for one in facts.replicas if one in known and one not in isr)
    return replace(changed, elr=elr, last_known_elr=() if isr else facts.last_known_elr)


def reckoned(facts: PartitionFacts, config: TopicConfig) -> PartitionFacts:
    """Recompute eligibility under a new ``min.insync.replicas``: none with enough in sync."""
    if not facts.elr or not facts.has_min_isr(config):
        return facts
    return with_isr(facts, facts.isr, config)
