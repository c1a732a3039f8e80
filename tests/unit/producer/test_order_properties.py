"""Order kept, nothing lost, nothing duplicated: random faults against a model of a leader.

The outcome that each delivery reports is compared with the log: acknowledged records are there
exactly once and in order, failed ones with ``maybe_written`` False aren't there at all.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kclient.error_codes import ErrorCode
from kclient.errors import BrokerError, ConnectionLost, RequestTimedOut
from kclient.producer._compiled import Delivery
from kclient.producer.flush import FlushWait
from kclient.protocol.messages.produce import ProduceResponse

from .model_broker import ModelBroker
from .rig import Rig, Sent

RETRIABLE = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
AFTER_APPEND = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Error codes that a leader may return although it has appended."""


class Story:
    """A producer and a leader, with faults in between."""

    def __init__(self, partitions: int, **settings: object) -> None:
        self.rig = Rig(partitions, delivery_timeout=30.0, retry_backoff=0.1, **settings)
        self.broker = ModelBroker()
        self.deliveries: list[tuple[int, bytes, Delivery]] = []
        self.wait = FlushWait(urgent=False)

    def send(self, partition: int, size: int) -> None:
        value = b"%d:%d:" % (partition, len(self.deliveries)) + b"." * size
        delivery = self.rig.send(value, partition=partition)
        self.deliveries.append((partition, value, delivery))
        batch = self.rig.accumulator.batch_of(delivery._outcome)
        if batch is not None:
            batch.watch(self.wait)

    def serve(self, fate: str, code: int = 0) -> None:
        """Handle the oldest request. A cut fails all behind it, as on one connection."""
        pending = self.rig.network.pending
        if not pending:
            return
        if fate == "ok":
            sent = self.rig.take_request()
            self.rig.answer(sent, self.broker.produce(sent.message()))
        elif fate == "refused":
            sent = self.rig.take_request()
            self.rig.answer(sent, self.broker.produce(sent.message(), refuse=code))
        elif fate == "appended":
            sent = self.rig.take_request()
            self.rig.answer(sent, self._overlay(self.broker.produce(sent.message()), code))
        else:
            self._cut(fate, list(pending))

    def _overlay(self, response: ProduceResponse, code: int) -> ProduceResponse:
        for topic in response.responses:
            for part in topic.partition_responses:
                if part.error_code == 0:
                    part.error_code, part.base_offset = code, -1
        return response

    def _cut(self, fate: str, lost: list[Sent]) -> None:
        del self.rig.network.pending[:]
        for place, sent in enumerate(lost):
            message = sent.message()
            if fate == "reply lost" or (fate == "part" and place == 0):
                self.broker.produce(message)
        error = RequestTimedOut("late") if fate == "never arrived" else ConnectionLost("cut")
        for sent in lost:
            self.rig.lose(sent, error)

    def check_unsent(self) -> None:
        """The wait counts as unsent all batches that are sealed and were in no request."""
        queues = [q for t in self.rig.accumulator.topics.values() for q in t.queues if q]
        unsent = [b for q in queues for b in q.sealed if not b.attempts]
        assert self.wait.unsent == sum(batch.reserved for batch in unsent)

    def final_codes(self) -> list[ErrorCode]:
        """Codes that end a batch or its numbering, whatever the leader has appended.

        OUT_OF_ORDER is left out while a gap is open: behind a gap it counts as proof of it, so a
        leader that returns it although it has the batch can't be distinguished from a correct one.
        """
        queues = [q for t in self.rig.accumulator.topics.values() for q in t.queues if q]
        open_gap = any(q.sequences and q.sequences.state.name == "UNRESOLVED" for q in queues)
        codes = [
            ErrorCode.INVALID_TIMESTAMP,
            ErrorCode.UNKNOWN_PRODUCER_ID,
            ErrorCode.INVALID_PRODUCER_EPOCH,
        ]
        return codes if open_gap else [*codes, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]

    def settle(self) -> None:
        """Serve everything that is pending, so that the producer is idle."""
        while not all(delivery.done() for _, _, delivery in self.deliveries):
            self.rig.pass_time(0.3)
            self.serve("ok")
            self.grant_if_asked()

    def forget(self) -> None:
        """Have the leader forget every producer, as ``producer.id.expiration.ms`` does."""
        for log in self.broker.logs.values():
            log.producers.clear()

    def grant_if_asked(self) -> None:
        if self.rig.identity.state.name == "REQUESTED":
            self.rig.grant(self.rig.identity.current.producer_id + 1)

    def finish(self) -> None:
        """Serve without faults until everything is settled."""
        for _ in range(2000):
            self.rig.pass_time(0.3)
            while self.rig.network.pending:
                self.serve("ok")
                self.rig.step()
            self.grant_if_asked()
            if all(delivery.done() for _, _, delivery in self.deliveries):
                break
        else:
            raise AssertionError("some deliveries never settle")

    def check(self) -> None:
        partitions = {partition for partition, _, _ in self.deliveries}
        for partition in partitions:
            written = self.broker.log("t", partition).values
            mine = [(v, d) for p, v, d in self.deliveries if p == partition]
            assert len(set(written)) == len(written), "doubled"
            sent_order = [value for value, _ in mine]
            places = [sent_order.index(value) for value in written]
            assert places == sorted(places), "reordered"
            for value, delivery in mine:
                error = delivery.exception()
                if error is None:
                    assert value in written, "lost"
                    offset = delivery.result().offset
                    assert offset < 0 or written[offset] == value
                elif error.maybe_written is False:
                    assert value not in written, f"written in spite of {error!r}"
                else:
                    assert error.maybe_written is True
        assert self.rig.accumulator.budget.used == 0
        assert (self.wait.unsent, self.wait.pending) == (0, 0)
        assert not self.rig.accumulator.busy


def run_story(seed: int, *, partitions: int, expiries: bool) -> Story:
    rng = random.Random(seed)
    story = Story(partitions, batch_size=rng.choice([90, 200, 400]))
    for partition in range(partitions):
        limits = [2**31, 160, 120] if expiries else [2**31, 160]
        story.broker.log("t", partition).max_batch_bytes = rng.choice(limits)
    for _ in range(rng.randrange(20, 120)):
        what = rng.random()
        if what < 0.45:
            story.send(rng.randrange(partitions), rng.choice([0, 1, 5, 60]))
        elif what < 0.65:
            story.rig.step()
        elif what < 0.75:
            story.rig.pass_time(rng.choice([0.01, 0.1, 0.5]))
        elif what < 0.78 and expiries:
            story.rig.pass_time(rng.choice([10.0, 31.0]))
        elif what < 0.80 and expiries:
            story.serve("refused", rng.choice(story.final_codes()))
            story.rig.step()
            story.grant_if_asked()
        else:
            fate = rng.choice(
                ["ok", "ok", "refused", "appended", "reply lost", "never arrived", "part"]
            )
            codes = [c for c in RETRIABLE if fate != "appended" or c in AFTER_APPEND]
            story.serve(fate, rng.choice(codes))
        story.check_unsent()
    story.finish()
    story.check()
    return story


@given(seed=st.integers(0, 2**32), partitions=st.integers(1, 3))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_with_retriable_faults_everything_arrives_once_and_in_order(
    seed: int, partitions: int
) -> None:
    story = run_story(seed, partitions=partitions, expiries=False)
    late = [d for _, _, d in story.deliveries if d.exception() is not None]
    assert not late, late


@given(seed=st.integers(0, 2**32), partitions=st.integers(1, 3))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_with_expiries_and_refusals_reports_stay_honest(seed: int, partitions: int) -> None:
    run_story(seed, partitions=partitions, expiries=True)


def run_forgetting(seed: int) -> Story:
    """Send bursts, each after the leader forgot the idle producer, each with its own faults."""
    rng = random.Random(seed)
    story = Story(rng.randrange(1, 3), batch_size=100)
    for _ in range(rng.randrange(1, 4)):
        story.settle()
        story.forget()
        for _ in range(rng.randrange(2, 7)):
            story.send(rng.randrange(len(story.rig.metadata.view.topics["t"].leaders)), 60)
        for _ in range(rng.randrange(2, 12)):
            story.rig.step()
            fate = rng.choice(["ok", "refused", "refused", "appended", "reply lost", "part"])
            codes = [c for c in RETRIABLE if fate != "appended" or c in AFTER_APPEND]
            if fate == "refused":
                codes += [ErrorCode.INVALID_TIMESTAMP] * 3
            story.serve(fate, rng.choice(codes))
            story.rig.pass_time(rng.choice([0.0, 0.01, 0.5]))
            story.grant_if_asked()
    story.finish()
    story.check()
    return story


def check_forgetting(seeds: range) -> None:
    """Run the story of each seed, and report the first one that fails."""
    for seed in seeds:
        try:
            run_forgetting(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_a_producer_forgotten_while_idle_neither_doubles_nor_reorders() -> None:
    check_forgetting(range(1500))


@pytest.mark.long
def test_a_producer_forgotten_while_idle_keeps_order_for_many_seeds() -> None:
    check_forgetting(range(1500, 60_000))


@pytest.mark.parametrize("refusals", [[], [ErrorCode.INVALID_TIMESTAMP]])
def test_a_batch_behind_which_one_may_be_written_is_not_renumbered(refusals: list[int]) -> None:
    """It was rejected before its append; the response to the one behind it is lost."""
    story = Story(1, batch_size=100)
    story.send(0, 60)
    story.settle()
    story.forget()
    for _ in range(len(refusals) + 2):
        story.send(0, 60)
    story.rig.step()
    for code in [*refusals, ErrorCode.NOT_ENOUGH_REPLICAS]:
        story.serve("refused", code)
    story.serve("reply lost")
    story.finish()
    story.check()
    (queue,) = story.rig.accumulator.topics["t"].queues
    assert queue is not None and queue.idle
    *refused, doubted = [d.exception() for _, _, d in story.deliveries[1:]]
    assert [error.maybe_written for error in refused] == [False] * (len(refusals) + 1)
    # Behind a gap, sending it again shows that the log has it.
    assert doubted is None if refusals else doubted.maybe_written is True


NEXT = ("ok", "duplicate", "out of order", "timeout", "not leader", "cut")


@pytest.mark.parametrize("following", NEXT)
@pytest.mark.parametrize("window", range(1, 6))
@pytest.mark.parametrize("lost", range(1, 6))
def test_a_lost_response_neither_doubles_nor_loses(lost: int, window: int, following: str) -> None:
    """The response to batch ``lost`` of a window of five is lost after the append."""
    story = Story(1, batch_size=100, max_in_flight=window)
    for _ in range(8):
        story.send(0, 60)
    served = 0
    while served < lost:
        story.rig.step()
        assert story.rig.network.pending
        served += 1
        story.serve("ok" if served < lost else "reply lost")
    story.rig.pass_time(0.5)
    if following == "duplicate":
        story.serve("refused", ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    elif following == "out of order":
        story.serve("refused", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    elif following == "timeout":
        story.serve("appended", ErrorCode.REQUEST_TIMED_OUT)
    elif following == "not leader":
        story.serve("refused", ErrorCode.NOT_LEADER_OR_FOLLOWER)
    elif following == "cut":
        story.serve("never arrived")
    else:
        story.serve("ok")
    story.finish()
    story.check()
    failed = [d.exception() for _, _, d in story.deliveries if d.exception() is not None]
    if following == "out of order":
        # The leader forgot the producer: sending the batch again could duplicate it.
        assert failed and all(error.maybe_written is True for error in failed)
    else:
        assert not failed


def test_sequences_wrap_to_zero_after_the_last_one() -> None:
    story = Story(1, batch_size=100)
    story.send(0, 60)
    story.rig.step()
    story.serve("ok")
    queue = story.rig.accumulator.topics["t"].queues[0]
    assert queue is not None and queue.sequences is not None
    queue.sequences.next = queue.sequences.acked_end = 2**31 - 3
    entry = story.broker.log("t", 0).producers[1000]
    entry.last_sequence = 2**31 - 4
    entry.window.clear()
    for _ in range(6):
        story.send(0, 0)
        story.send(0, 60)
    story.finish()
    story.check()
    assert entry.last_sequence < 20
    assert all(delivery.exception() is None for _, _, delivery in story.deliveries)


def test_an_exhausted_epoch_brings_a_new_producer_id() -> None:
    story = Story(1, batch_size=100)
    story.rig.identity.current = story.rig.identity.current._replace(epoch=32766)
    for _ in range(4):
        story.send(0, 60)
        story.rig.step()
        story.serve("refused", ErrorCode.INVALID_TIMESTAMP)  # leaves a gap each time
        story.rig.step()
        if story.rig.identity.state.name == "REQUESTED":
            story.rig.grant(2000)
    story.send(0, 60)
    story.finish()
    story.check()
    assert 2000 in story.broker.log("t", 0).producers
    assert isinstance(story.deliveries[0][2].exception(), BrokerError)
