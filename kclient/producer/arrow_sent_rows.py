"""Which row of a ``send_arrow`` is in which batch, kept until it is acknowledged.

``arrow_send`` notes where a run of rows begins in a batch; later rows of the same partition follow
it in the batch, so that a row costs four bytes and no work. Slices whose batches are all
acknowledged are dropped. Sans-IO.
"""

from __future__ import annotations

import copy
from array import array
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kclient.errors import RowsNotDelivered

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from kclient.errors import KafkaError
    from kclient.producer._compiled import BatchOutcome
    from kclient.producer.flush import FailureTally

_STEP = 1_000
"""Rows that are processed in one step."""


@dataclass(slots=True)
class Slice:
    """Rows that were taken together.

    Attributes:
        base: The number of the first.
        targets: The partition of each.
        lanes: By partition, the batch that took earlier rows, and how many records it had.
        runs: Starts of rows of a partition in another batch: row, batch, index in that batch.
    """

    base: int
    targets: array[int]
    lanes: dict[int, tuple[BatchOutcome, int]]
    runs: list[tuple[int, BatchOutcome, int]] = field(default_factory=list)

    def written(self) -> bool:
        """Return whether all batches that may have its rows are acknowledged."""
        outcomes = [outcome for outcome, _ in self.lanes.values()]
        outcomes += [outcome for _, outcome, _ in self.runs]
        return all(_is_written(outcome) for outcome in outcomes)


class SentRows:
    """The rows of one call.

    Attributes:
        nexts: By partition, the index that its next row gets in the batch that took the last one,
            if no other call adds to it.
    """

    def __init__(self) -> None:
        self.nexts = array("q")
        self._current: dict[int, BatchOutcome] = {}
        self._slices: deque[Slice] = deque()

    def begin(self, base: int, count: int) -> array[int]:
        """Start a new slice of rows; return an array for their partitions, to be filled in."""
        while self._slices and self._slices[0].written():
            self._slices.popleft()
        lanes = {
            partition: (outcome, self.nexts[partition])
            for partition, outcome in self._current.items()
            if not _is_written(outcome)
        }
        self._current = {partition: outcome for partition, (outcome, _) in lanes.items()}
        targets = array("i", bytes(4 * count))
        self._slices.append(Slice(base, targets, lanes))
        return targets

    def widen(self, partitions: int) -> None:
        """Make ``nexts`` cover at least ``partitions`` partitions."""
        self.nexts.extend([-1] * (partitions - len(self.nexts)))

    def note(self, row: int, outcome: BatchOutcome, index: int) -> None:
        """Note that ``row`` is the record at ``index`` in the batch of ``outcome``."""
        self.widen(outcome.partition + 1)
        partition = outcome.partition
        if self._current.get(partition) is not outcome or self.nexts[partition] != index:
            last = self._slices[-1]
            last.runs.append((row - last.base, outcome, index))
            self._current[partition] = outcome
        self.nexts[partition] = index + 1

    def failure(self, taken: int, tally: FailureTally) -> Generator[None, None, RowsNotDelivered]:
        """Return the error that names the rows before ``taken`` that were not acknowledged."""
        failed: dict[int, tuple[array[int], KafkaError]] = {}
        for each in self._slices:
            if not each.written():
                yield from self._collect(each, taken, failed)
        public: dict[int, KafkaError] = {}
        rows = [(_compact(numbers), _own(error, public)) for numbers, error in failed.values()]
        errors = [_own(error, public) for error in tally.errors]
        count = sum(len(numbers) for numbers, _ in rows)
        first = f"; first: row {rows[0][0][0]}: {rows[0][1]}" if rows else ""
        subject = "row was" if count == 1 else "rows were"
        failure = RowsNotDelivered(
            f"{count:,} of {taken:,} {subject} not delivered{first}",
            count=count,
            errors=errors,
            rows=rows,
            taken=taken,
        )
        failure.__cause__ = errors[0] if errors else None
        return failure

    def _collect(
        self, each: Slice, taken: int, failed: dict[int, tuple[array[int], KafkaError]]
    ) -> Generator[None, None, None]:
        lanes = dict(each.lanes)
        runs = iter(each.runs)
        run = next(runs, None)
        for at in range(min(len(each.targets), taken - each.base)):
            partition = each.targets[at]
            if run is not None and run[0] == at:
                lanes[partition] = run[1], run[2]
                run = next(runs, None)
            outcome, index = lanes[partition]
            lanes[partition] = outcome, index + 1
            error = _error_of(outcome, index)
            if error is not None:
                failed.setdefault(id(error), (array("q"), error))[0].append(each.base + at)
            if at % _STEP == 0:
                yield


def _is_written(outcome: BatchOutcome) -> bool:
    if outcome._parts is not None:
        return all(_is_written(part) for _, part in outcome._parts)
    return outcome.done and outcome.error is None


def _error_of(outcome: BatchOutcome, index: int) -> KafkaError | None:
    """Return why a record of a settled batch was not written: one error for all such records."""
    while outcome._parts is not None:
        outcome, index = outcome._part_of(index)
    if outcome.record_errors is not None:
        return outcome.record_errors.get(index, outcome.error)
    return outcome.error


def _own(error: KafkaError, public: dict[int, KafkaError]) -> KafkaError:
    """Return a copy for the caller, the same one for each use of ``error`` in this call.

    A batch keeps its own error: raising that would keep the caller's frames alive with it.
    """
    own = public.get(id(error))
    if own is None:
        own = public[id(error)] = copy.copy(error)
        own.__cause__ = error.__cause__
    return own


def _compact(numbers: array[int]) -> Sequence[int]:
    """Return ascending numbers, as a range if they are consecutive."""
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return range(numbers[0], numbers[-1] + 1)
    return numbers
