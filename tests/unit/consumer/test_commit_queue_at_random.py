"""The queue of commits in random orders of calls, responses, rebalances: nothing moves back."""

from __future__ import annotations

import math

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kclient.broker_errors import (
    IllegalGeneration,
    NotCoordinator,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    UnknownTopicOrPartition,
)
from kclient.consumer.commit_queue import Commit
from kclient.errors import ConnectionLost, KafkaError, RequestTimedOut
from kclient.types import TopicPartition
from tests.unit.consumer.test_commit_queue import P0, P1, P2, PATIENCE, at, new_queue

PARTITIONS = (P0, P1, P2)

Outcomes = st.sampled_from(
    ["ok", "lost", "refused before", "rebalancing", "ousted", "too large", "unknown"]
)


class Coordinator(RuleBasedStateMachine):
    """Random calls, responses and rebalances, beside a model of what the coordinator has.

    Offsets of ordinary calls grow, as those of a consumer do; those of ``at_least`` are any.
    """

    def __init__(self) -> None:
        super().__init__()
        self.queue = new_queue()
        self.now = 0.0
        self.stored = dict.fromkeys(PARTITIONS, 0)
        self.sent: dict[TopicPartition, int] = {}
        self.lost: set[TopicPartition] = set()
        self.next = 1
        self.open: dict[Commit[str], dict[TopicPartition, int]] = {}
        self.finished: list[Commit[str]] = []
        self.queue.learned({key: at(0) for key in PARTITIONS})

    def ask(self, wanted: dict[TopicPartition, int], timeout: float, at_least: bool) -> None:
        call = Commit("token", self.now, self.now + timeout)
        offsets = {key: at(offset) for key, offset in wanted.items()}
        self.open[call] = wanted
        self.queue.add(call, offsets, lambda one: one not in self.lost, at_least=at_least)
        self.look()

    @rule(
        partitions=st.sets(st.sampled_from(PARTITIONS)),
        timeout=st.sampled_from([0.5, 5.0, 60.0, math.inf]),
    )
    def commit(self, partitions: set[TopicPartition], timeout: float) -> None:
        self.next += 1
        self.ask(dict.fromkeys(sorted(partitions), self.next), timeout, False)

    @rule(
        partition=st.sampled_from(PARTITIONS),
        back=st.integers(0, 5),
        timeout=st.sampled_from([0.5, 5.0, 60.0]),
    )
    def commit_record(self, partition: TopicPartition, back: int, timeout: float) -> None:
        self.ask({partition: max(0, self.next - back)}, timeout, True)

    @rule()
    def send(self) -> None:
        if not self.sent:
            taken = self.queue.take(self.now, lambda one: one not in self.lost)
            assert not self.lost & taken.keys()
            self.sent = {key: one.offset for key, one in taken.items()}
            self.look()

    @rule(outcomes=st.tuples(Outcomes, Outcomes, Outcomes), outdated=st.booleans())
    def be_answered(self, outcomes: tuple[str, str, str], outdated: bool) -> None:
        answers: dict[TopicPartition, KafkaError | None] = {}
        for outcome, partition in zip(outcomes, PARTITIONS, strict=True):
            if partition in self.sent:
                answers[partition] = self.answer(partition, outcome)
        if answers:
            self.sent = {}
            self.queue.answered(answers, self.now, outdated=outdated)
            self.look()

    def answer(self, partition: TopicPartition, outcome: str) -> KafkaError | None:
        if outcome in ("ok", "lost"):
            if partition not in self.lost:
                assert self.sent[partition] >= self.stored[partition], "an offset moved back"
                self.stored[partition] = self.sent[partition]
        errors: dict[str, KafkaError] = {
            "lost": ConnectionLost("x"),
            "refused before": NotCoordinator("x"),
            "rebalancing": RebalanceInProgress("x"),
            "ousted": IllegalGeneration("x"),
            "too large": OffsetMetadataTooLarge("x"),
            "unknown": UnknownTopicOrPartition("x"),
        }
        return errors.get(outcome)

    @rule(seconds=st.sampled_from([0.05, 0.4, 2.0, 30.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.queue.expire(self.now)
        self.look()

    @rule()
    def wake(self) -> None:
        self.queue.retry_now()

    @rule(partition=st.sampled_from(PARTITIONS))
    def lose(self, partition: TopicPartition) -> None:
        if partition not in self.lost and partition not in self.sent:
            self.lost.add(partition)
            self.queue.forget([partition])
            self.look()

    @rule(partition=st.sampled_from(PARTITIONS), further=st.integers(0, 3))
    def get_back(self, partition: TopicPartition, further: int) -> None:
        if partition in self.lost:
            self.lost.discard(partition)
            self.next += further
            self.stored[partition] = self.next  # where another member left it
            self.queue.learned({partition: at(self.next)})

    def look(self) -> None:
        """Every outcome comes once, and what is reported as committed is."""
        for call in self.queue.finished():
            wanted = self.open.pop(call)  # raises for a second time
            assert call.done
            if call.error is None:
                for partition, offset in wanted.items():
                    assert self.stored[partition] >= offset, "not committed, though it said so"
            elif isinstance(call.error, RequestTimedOut):
                assert call.deadline <= self.now
            elif isinstance(call.error, UnknownTopicOrPartition):
                assert call.begun + PATIENCE <= self.now

    @invariant()
    def nothing_known_is_wrong(self) -> None:
        for partition, offset in self.queue.committed.items():
            assert partition not in self.lost
            if partition not in self.queue._doubtful:
                assert self.stored[partition] == offset

    @invariant()
    def nobody_is_forgotten(self) -> None:
        waits = {
            call
            for wishes in (self.queue._waiting, self.queue._sent)
            for wish in wishes.values()
            for call in wish.calls
        }
        assert waits == set(self.open)
        assert all(call.open for call in waits)

    def teardown(self) -> None:
        for _ in range(3):
            if self.sent:
                self.be_answered(("ok", "ok", "ok"), False)
            self.now += 2.0
            self.queue.retry_now()
            self.send()
        self.be_answered(("ok", "ok", "ok"), False)
        assert not self.open
        assert self.queue.idle


Coordinator.TestCase.settings = settings(max_examples=300, stateful_step_count=50, deadline=None)
TestWhateverHappens = Coordinator.TestCase
