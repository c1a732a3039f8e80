"""What one log remembers of idempotent producers: the last five batches of each (KIP-98, KIP-360).

Pure rules, the same as Kafka's ``ProducerStateManager``: a batch whose sequence range was seen is
a duplicate, which is acknowledged with its first offset; one that doesn't follow is out of order;
one of an older epoch is refused. Used by ``log.py``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from kclient.error_codes import ErrorCode
from kclient.testing.refused import Refused
from kclient.testing.stored_batch import StoredBatch

REMEMBERED_BATCHES = 5
"""Of each producer, as in Kafka: what bounds ``max.in.flight`` of idempotent producers."""

_MAX_SEQUENCE = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class AppendedBatch:
    """One batch of a producer that is in the log."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


@dataclass(slots=True, eq=False)
class ProducerState:
    """One producer id in one log."""

    epoch: int
    last_sequence: int = -1
    batches: deque[AppendedBatch] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))


class ProducerStates:
    """All producers of one log, by id."""

    def __init__(self) -> None:
        self._states: dict[int, ProducerState] = {}

    def get(self, producer_id: int) -> ProducerState | None:
        """The state of a producer, None where it never wrote or was forgotten."""
        return self._states.get(producer_id)

    def find_duplicate(self, batch: StoredBatch) -> AppendedBatch | None:
        """The remembered batch with the same epoch and sequence range."""
        state = self._states.get(batch.producer_id)
        if state is None or state.epoch != batch.producer_epoch:
            return None
        first, last = batch.base_sequence, batch.last_sequence
        for seen in state.batches:
            if seen.first_sequence == first and seen.last_sequence == last:
                return seen
        return None

    def check(self, batch: StoredBatch) -> None:
        """Raise Refused unless ``batch``, no duplicate, is the next one of its producer."""
        state = self._states.get(batch.producer_id)
        if state is None:
            return  # forgotten by retention, or new: any sequence is taken (KIP-360)
        if batch.producer_epoch < state.epoch:
            raise Refused(ErrorCode.INVALID_PRODUCER_EPOCH)
        first = batch.base_sequence
        if batch.producer_epoch > state.epoch:
            if first != 0:
                raise Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
            return
        last = state.last_sequence
        if first != last + 1 and not (first == 0 and last == _MAX_SEQUENCE):
            raise Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)

    def note(self, batch: StoredBatch) -> None:
        """Remember ``batch``, which was checked and has its offsets."""
        state = self._states.get(batch.producer_id)
        if state is None:
            state = self._states[batch.producer_id] = ProducerState(batch.producer_epoch)
        elif state.epoch != batch.producer_epoch:
            state.epoch = batch.producer_epoch
            state.batches.clear()
        if batch.is_control:
            return  # a marker has no sequence
        state.last_sequence = batch.last_sequence
        state.batches.append(
            AppendedBatch(
                batch.base_sequence,
                batch.last_sequence,
                batch.base_offset,
                batch.last_offset,
                batch.max_timestamp,
            )
        )

    def forget(self, producer_id: int | None = None) -> None:
        """Drop the state of one producer, or of all, as expiry does."""
        if producer_id is None:
            self._states.clear()
        else:
            self._states.pop(producer_id, None)
