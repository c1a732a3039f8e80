"""Elections: the leader after brokers leave and return, and which stay eligible (KIP-966)."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import given, settings
from hypothesis import strategies as st

from kclient.testing import controller
from kclient.testing.broker_configs import BrokerConfig
from kclient.testing.image import NO_LEADER, PartitionRegistration
from kclient.testing.topic_configs import TopicConfig


def config(min_isr: int = 1, *, unclean: bool = False) -> TopicConfig:
    given = {
        "min.insync.replicas": str(min_isr),
        "unclean.leader.election.enable": str(unclean).lower(),
    }
    return TopicConfig(given, BrokerConfig({}).topic_defaults)


class Scene:
    """One partition, and the brokers that are up."""

    def __init__(self, *replicas: int, config: TopicConfig) -> None:
        self.config = config
        self.up = set(replicas)
        self.facts = PartitionRegistration("t", 0, replicas, replicas, replicas[0])

    def go(self, *brokers: int) -> None:
        for one in brokers:
            self.up.discard(one)
            self.facts = controller.broker_gone(self.facts, one, self.up, self.config)

    def come(self, *brokers: int) -> None:
        for one in brokers:
            self.up.add(one)
            self.facts = controller.broker_back(self.facts, one, self.up, self.config)

    def catch_up(self, *brokers: int) -> None:
        facts = self.facts
        isr = tuple(one for one in facts.replicas if one in (*facts.isr, *brokers))
        self.facts = controller.with_isr(facts, isr, self.config)

    @property
    def reported(self) -> tuple[int, int, tuple[int, ...]]:
        return self.facts.leader, self.facts.leader_epoch, self.facts.isr

    @property
    def eligible(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.facts.elr, self.facts.last_known_elr


def test_a_leader_that_goes_hands_over_to_the_next_in_sync() -> None:
    scene = Scene(1, 2, 3, config=config())
    scene.go(1)
    assert scene.reported == (2, 1, (2, 3))


def test_a_follower_that_goes_leaves_the_isr_and_the_leader_its_epoch() -> None:
    scene = Scene(1, 2, 3, config=config())
    scene.go(3)
    assert scene.reported == (1, 0, (1, 2))
    assert scene.facts.partition_epoch == 1


def test_what_has_nothing_to_do_with_a_broker_stays_the_same_object() -> None:
    facts = PartitionRegistration("t", 0, (1, 2), (1, 2), 1)
    assert controller.broker_gone(facts, 3, {1, 2}, config()) is facts
    assert controller.broker_back(facts, 2, {1, 2}, config()) is facts
    assert controller.broker_back(facts, 3, {1, 2, 3}, config()) is facts


def test_a_follower_that_is_behind_is_not_elected() -> None:
    scene = Scene(1, 2, 3, config=config())
    scene.go(2)
    scene.come(2)
    scene.go(1)
    assert scene.reported == (3, 1, (3,))


def test_a_broker_that_comes_back_leads_nothing_and_is_not_in_sync() -> None:
    scene = Scene(1, 2, 3, config=config())
    scene.go(1)
    scene.come(1)
    assert scene.reported == (2, 1, (2, 3))


def test_only_the_last_one_in_sync_leads_when_it_is_back() -> None:
    scene = Scene(1, 2, config=config())
    scene.go(1, 2)
    assert scene.reported == (NO_LEADER, 2, ())
    assert scene.eligible == ((2,), (2,))
    scene.come(1)
    assert scene.reported == (NO_LEADER, 2, ())
    scene.come(2)
    assert scene.reported == (2, 3, (2,))
    assert scene.eligible == ((), ())


def test_below_min_isr_those_that_go_may_lead_again() -> None:
    scene = Scene(1, 2, 3, config=config(2))
    scene.go(3)
    assert (scene.facts.isr, scene.facts.elr) == ((1, 2), ())
    scene.go(2)
    assert (scene.facts.isr, scene.facts.elr) == ((1,), (2,))
    scene.go(1)
    assert (scene.facts.leader, scene.facts.isr, scene.facts.elr) == (NO_LEADER, (), (1, 2))
    scene.come(3)
    assert scene.facts.leader == NO_LEADER
    scene.come(2)
    assert (scene.facts.leader, scene.facts.isr, scene.facts.elr) == (2, (2,), (1,))
    scene.come(1)
    assert scene.facts.elr == (1,)
    scene.catch_up(1)
    assert (scene.facts.isr, scene.facts.elr) == ((1, 2), ())


def test_an_unclean_election_needs_permission_and_takes_any_broker_that_is_up() -> None:
    scene = Scene(1, 2, 3, config=config(unclean=True))
    scene.go(2, 3, 1)
    assert scene.facts.leader == NO_LEADER
    scene.come(3)
    assert scene.reported == (3, 2, (3,))
    assert scene.eligible == ((), ())


def test_one_in_sync_goes_before_an_unclean_one() -> None:
    scene = Scene(1, 2, 3, config=config(unclean=True))
    scene.go(2)
    scene.come(2)
    scene.go(1)
    assert scene.reported == (3, 1, (3,))


def test_an_eligible_one_goes_before_an_unclean_one() -> None:
    facts = PartitionRegistration("t", 0, (1, 2, 3), (), NO_LEADER, 4, 7, elr=(3,))
    after = controller.elect(facts, {1, 2, 3}, config(2, unclean=True))
    assert (after.leader, after.leader_epoch, after.isr, after.elr) == (3, 5, (3,), ())


def test_where_no_broker_is_up_nothing_is_elected() -> None:
    facts = PartitionRegistration("t", 0, (1, 2), (), NO_LEADER, 4, 7, elr=(2,))
    assert controller.elect(facts, (), config(unclean=True)) is facts
    assert controller.elect_unclean(facts, ()) is facts


def test_a_leader_that_is_lost_is_noted_once() -> None:
    facts = PartitionRegistration("t", 0, (1,), (1,), 1, 4)
    lost = controller.elect(facts, (), config())
    assert (lost.leader, lost.leader_epoch) == (NO_LEADER, 5)
    assert controller.elect(lost, (), config()) is lost


_BROKERS = st.integers(1, 4)
_STEPS = st.lists(st.tuples(st.sampled_from(("go", "come", "catch_up")), _BROKERS), max_size=30)


@settings(max_examples=200, deadline=None)
@given(st.permutations((1, 2, 3)), st.integers(1, 3), st.booleans(), _STEPS)
def test_whatever_happens_the_facts_agree_with_each_other(
    replicas: list[int], min_isr: int, unclean: bool, steps: list[tuple[str, int]]
) -> None:
    scene = Scene(*replicas, config=config(min_isr, unclean=unclean))
    for step, broker in steps:
        before = scene.facts
        if step == "go":
            scene.go(broker)
        elif step == "come":
            scene.come(broker)
        elif scene.facts.leader != NO_LEADER and broker in scene.up and broker in replicas:
            scene.catch_up(broker)
        check(before, scene.facts, scene.up, min_isr, unclean=unclean)


def check(
    before: PartitionRegistration,
    after: PartitionRegistration,
    up: Collection[int],
    min_isr: int,
    *,
    unclean: bool,
) -> None:
    if after.leader == NO_LEADER:
        assert not after.isr
        assert not unclean or not set(after.replicas) & set(up)
        assert not set(after.elr) & set(up), "an eligible one was up and not elected"
    else:
        assert after.leader in after.isr
        assert after.leader in up
        assert not after.last_known_elr
    assert not set(after.isr) & set(after.elr)
    assert len(after.isr) < min_isr or not after.elr
    assert set(after.isr) <= set(up)
    assert after.leader_epoch - before.leader_epoch == (after.leader != before.leader)
    if after != before:
        assert after.partition_epoch > before.partition_epoch
    if after.leader != before.leader and after.leader != NO_LEADER and not unclean:
        assert after.leader in (*before.isr, *before.elr)
