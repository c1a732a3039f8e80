"""Bugs that clients really had, planted into this one, to show that the history checker sees them.

Each is a function that changes the client through a ``MonkeyPatch``, and the kind of violation that
it must come to. ``test_planted_bugs`` runs seeds of the simulation with one bug at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from kclient.consumer.completed_fetch import CompletedFetch
from kclient.consumer.fetch_buffer import FetchBuffer
from kclient.consumer.fetch_response import FetchResponseReader
from kclient.consumer.poller import Poller
from kclient.error_codes import ErrorCode
from kclient.producer._compiled import BatchOutcome, PartitionQueue, ProducerBatch
from kclient.producer.accumulator import Accumulator, TopicQueues
from kclient.producer.admission import Admission
from kclient.producer.batch_states import BatchState
from kclient.producer.produce_request import BatchRequest, PartitionResponse
from kclient.producer.produce_response import ProduceResponseHandler
from tests.history import Kind


class Planted(NamedTuple):
    """One bug."""

    plant: Callable[[pytest.MonkeyPatch], None]
    kind: Kind

    @property
    def name(self) -> str:
        """As tests are named after it."""
        return self.plant.__name__


# Producer.

QUEUE = "kclient.producer.accumulator.PartitionQueue"
"""Where queues are made. Compiled classes are not to be changed, so they are made of another."""


def a_retry_gets_new_numbers(patch: pytest.MonkeyPatch) -> None:
    """The broker can't know that it has the batch already."""

    class Planted(PartitionQueue):
        def sent(self, batch: ProducerBatch) -> bool:
            again = batch.state is BatchState.RETRYING
            others_wait = super().sent(batch)
            if again and self.sequences is not None:
                batch.sequence = self.sequences.take(batch.record_count)
            return others_wait

    patch.setattr(QUEUE, Planted)


def a_retry_goes_without_numbers(patch: pytest.MonkeyPatch) -> None:
    """As a producer without idempotence does."""

    class Planted(PartitionQueue):
        def sent(self, batch: ProducerBatch) -> bool:
            again = batch.state is BatchState.RETRYING
            others_wait = super().sent(batch)
            if again:
                batch.producer_id = batch.producer_epoch = batch.sequence = -1
            return others_wait

    patch.setattr(QUEUE, Planted)


def a_lost_answer_counts_as_a_yes(patch: pytest.MonkeyPatch) -> None:
    """The retry is dropped, and the record acknowledged."""
    request_failed = ProduceResponseHandler.request_failed

    def planted(
        self: ProduceResponseHandler, request: BatchRequest, error: Any, now: float
    ) -> None:
        for batch in list(request.batches):
            if request.carries(batch) and batch.state is BatchState.IN_FLIGHT:
                request.batches.remove(batch)
                batch.request = None
                self._written(batch, PartitionResponse(ErrorCode.NONE), now)
        request_failed(self, request, error, now)

    patch.setattr(ProduceResponseHandler, "request_failed", planted)


def waiting_batches_are_renumbered_backwards(patch: pytest.MonkeyPatch) -> None:
    """When the numbers of a partition start over, its waiting batches change places."""

    class Planted(PartitionQueue):
        def adopt(self, identity: Any) -> None:
            self.outstanding.reverse()
            super().adopt(identity)

    patch.setattr(QUEUE, Planted)


def numbers_start_over_when_a_leader_moves(patch: pytest.MonkeyPatch) -> None:
    """The new leader takes new records for repeats, and acknowledges (librdkafka before 1.9)."""
    update_leaders = Accumulator.update_leaders

    def planted(self: Accumulator, topic: TopicQueues) -> None:
        for queue in topic.queues:
            moved = queue is not None and queue.leader != topic.leader_of(queue.index)
            if moved and queue is not None and queue.sequences is not None and queue.idle:
                queue.sequences.next = queue.sequences.acked_end = 0
        update_leaders(self, topic)

    patch.setattr(Accumulator, "update_leaders", planted)


def the_numbers_of_an_expired_batch_are_used_again(patch: pytest.MonkeyPatch) -> None:
    """It was in flight, and is in the log: the next one counts as its repetition."""

    class Planted(PartitionQueue):
        def expired(self, batch: ProducerBatch) -> None:
            super().expired(batch)
            sequences = self.sequences
            if batch.state is BatchState.ABANDONED and sequences is not None:
                if sequences.next == batch.end_sequence:
                    sequences.next = batch.sequence

    patch.setattr(QUEUE, Planted)


def the_parts_of_a_batch_change_places(patch: pytest.MonkeyPatch) -> None:
    """It was too large for the broker, and its second half gets the first numbers."""

    class Planted(PartitionQueue):
        def split(self, batch: ProducerBatch) -> list[ProducerBatch]:
            where = self.outstanding.index(batch)
            parts = super().split(batch)
            sequence = parts[0].sequence
            for offset, part in enumerate(reversed(parts)):
                if sequence >= 0:
                    part.sequence = sequence
                    sequence += part.record_count
                self.outstanding[where + offset] = part
            return parts

    patch.setattr(QUEUE, Planted)


def who_waits_for_space_is_overtaken(patch: pytest.MonkeyPatch) -> None:
    """A smaller record that comes later fits where an earlier one didn't."""
    patch.setattr(Admission, "none_waiting", lambda self, topic: True)


def offsets_of_a_batch_are_one_off(patch: pytest.MonkeyPatch) -> None:
    """Records report the offset of their neighbour."""

    class Planted(BatchOutcome):
        def acknowledge(self, base_offset: int, log_append_time: int = -1) -> None:
            super().acknowledge(base_offset + (self.count > 1), log_append_time)

    patch.setattr("kclient.producer.accumulator.BatchOutcome", Planted)


def answers_go_to_the_wrong_partition(patch: pytest.MonkeyPatch) -> None:
    """They are taken in the order in which the batches were sent, whichever partition they name."""
    answers = BatchRequest.answers

    def planted(self: BatchRequest, response: Any) -> dict[ProducerBatch, PartitionResponse]:
        found = answers(self, response)
        return dict(zip(found, reversed(found.values()), strict=True))

    patch.setattr(BatchRequest, "answers", planted)


def what_may_be_written_is_said_not_to_be(patch: pytest.MonkeyPatch) -> None:
    """A request without a response counts as one that was not sent."""
    failed = ProduceResponseHandler._failed

    def planted(self: ProduceResponseHandler, batch: ProducerBatch, *rest: Any) -> None:
        batch.maybe_written = False
        failed(self, batch, *rest)

    patch.setattr(ProduceResponseHandler, "_failed", planted)


def a_batch_is_given_up_in_silence(patch: pytest.MonkeyPatch) -> None:
    """Its waiters are never notified."""

    class Planted(BatchOutcome):
        def fail(self, error: Any, record_errors: Any = None) -> None:
            self._waiting = None
            super().fail(error, record_errors)

    patch.setattr("kclient.producer.accumulator.BatchOutcome", Planted)


# Consumer.


def the_position_moves_before_the_hand_over(patch: pytest.MonkeyPatch) -> None:
    """A poll that is cancelled in between has lost what it took."""
    poll = Poller.poll

    async def planted(self: Poller, limit: int, timeout: float, *, raw: bool = False) -> list[Any]:
        records = await poll(self, limit, timeout, raw=raw)
        await asyncio.sleep(0.001)
        return records

    patch.setattr(Poller, "poll", planted)


def an_answer_to_an_old_question_is_taken(patch: pytest.MonkeyPatch) -> None:
    """A fetch that is in flight during a seek brings what lay behind the old position."""
    read = FetchResponseReader.read

    def planted(self: FetchResponseReader, state: Any, ask: Any, *rest: Any) -> None:
        if state.fetch_offset is not None and state.fetch_offset != ask.offset:
            ask = ask._replace(offset=state.fetch_offset)
        read(self, state, ask, *rest)

    patch.setattr(FetchResponseReader, "read", planted)


def the_last_record_of_a_batch_is_left_out(patch: pytest.MonkeyPatch) -> None:
    """An end that is taken for exclusive."""
    take = CompletedFetch.take

    def planted(self: CompletedFetch, limit: int) -> list[Any]:
        records = take(self, limit)
        return records[:-1] if len(records) > 1 and self._batch is None else records

    patch.setattr(CompletedFetch, "take", planted)


def records_before_the_position_are_given(patch: pytest.MonkeyPatch) -> None:
    """A fetch begins with the whole batch that the position lies in."""
    take = CompletedFetch.take

    def planted(self: CompletedFetch, limit: int) -> list[Any]:
        batch = self._batch or self._open_next()
        if batch is not None and not self._ready and batch.base_offset < self.offset:
            self.offset = batch.base_offset
        return take(self, limit)

    patch.setattr(CompletedFetch, "take", planted)


def paused_partitions_are_given(patch: pytest.MonkeyPatch) -> None:
    """What was buffered before the pause is handed over in it."""

    def planted(self: FetchBuffer) -> Any:
        for state in list(self._turns):
            if self._is_stale(state):
                self.drop(state)
                self._subscription.rewind_fetch(state)
            elif state not in self._blocked:
                self._turns.move_to_end(state)
                return state
        return None

    patch.setattr(FetchBuffer, "_next_turn", planted)


BUGS = (
    Planted(a_retry_gets_new_numbers, Kind.DUPLICATE),
    Planted(a_retry_goes_without_numbers, Kind.DUPLICATE),
    Planted(a_lost_answer_counts_as_a_yes, Kind.LOST_WRITE),
    Planted(waiting_batches_are_renumbered_backwards, Kind.REORDERED),
    Planted(numbers_start_over_when_a_leader_moves, Kind.LOST_WRITE),
    Planted(the_parts_of_a_batch_change_places, Kind.REORDERED),
    Planted(who_waits_for_space_is_overtaken, Kind.REORDERED),
    Planted(the_numbers_of_an_expired_batch_are_used_again, Kind.LOST_WRITE),
    Planted(offsets_of_a_batch_are_one_off, Kind.WRONG_OFFSET),
    Planted(answers_go_to_the_wrong_partition, Kind.WRONG_OFFSET),
    Planted(what_may_be_written_is_said_not_to_be, Kind.FAILED_WRITE_FOUND),
    Planted(a_batch_is_given_up_in_silence, Kind.UNRESOLVED),
    Planted(the_position_moves_before_the_hand_over, Kind.POLL_SKIP),
    Planted(an_answer_to_an_old_question_is_taken, Kind.POLL_SKIP),
    Planted(the_last_record_of_a_batch_is_left_out, Kind.POLL_SKIP),
    Planted(records_before_the_position_are_given, Kind.POLL_NONMONOTONIC),
    Planted(paused_partitions_are_given, Kind.POLL_PAUSED),
)
