"""Which row of a ``send_arrow`` is in which batch, for as long as that may be asked.

``arrow_send`` notes where a run of rows begins in a batch; what follows it in the same partition
follows it in the batch, so that a row costs four bytes and no work. Slices whose batches are all
acknowledged are forgotten. Sans-IO.
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
"""Rows that are looked at in one step."""


@dataclass(slots=True)
class Slice:
    """Rows that were taken together.

    Attributes:
        base: The number of the first.
        targets: The partition of each.
        lanes: By partition, the batch that took rows before the first, and how many it had.
        runs: Where rows of a partition begin in another batch: row, batch, index there.
    """

    base: int
    targets: array[int]
    lanes: dict[int, tuple[BatchOutcome, int]]
    runs: list[tuple[int, BatchOutcome, int]] = field(default_factory=list)

    def written(self) -> bool:
        """All batches that may have its rows are acknowledged."""
        outcomes = [outcome for outcome, _ in self.lanes.values()]
        outcomes += [outcome for _, outcome, _ in self.runs]
        return all(_is_written(outcome) for outcome in outcomes)


class SentRows:
    """The rows of one call.

    Attributes:
        nexts: By partition, the index that its next row gets in the batch that took the last one,
            if nobody else adds to it.
    """

    def __init__(self) -> None:
        self.nexts = array("q")
        self._current: dict[int, BatchOutcome] = {}
        self._slices: deque[Slice] = deque()

    def begin(self, base: int, count: int) -> array[int]:
        """A new slice of rows: an array for their partitions, to be filled in."""
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
        """There are so many partitions, or more."""
        self.nexts.extend([-1] * (partitions - len(self.nexts)))

    def note(self, row: int, outcome: BatchOutcome, index: int) -> None:
        """``row`` is the record ``index`` of the batch ``outcome``."""
        self.widen(outcome.partition + 1)
        partition = outcome.partition
        if self._current.get(partition) is not outcome or self.nexts[partition] != index:
            last = self._slices[-1]
            last.runs.append((row - last.base, outcome, index))
            self._current[partition] = outcome
        self.nexts[partition] = index + 1

    def failure(self, taken: int, tally: FailureTally) -> Generator[None, None, RowsNotDelivered]:
        """The error that names the rows before ``taken`` that were not acknowledged."""
        failed: dict[int, tuple[array[int], KafkaError]] = {}
        for each in self._slices:
            if not each.written():
                yield from self._collect(each, taken, failed)
        public: dict[int, KafkaError] = {}
        rows = [(_compact(numbers), _own(error, public)) for numbers, error in failed.values()]
        errors = [_own(error, public) for error in tally.errors]
        count = sum(len(numbers) for numbers, _ in rows)
        first = f"; first: row {rows[0][0][0]}: {rows[0][1]}" if rows else ""
        words = "row was" if count == 1 else "rows were"
        failure = RowsNotDelivered(
            f"{count:,} of {taken:,} {words} not delivered{first}",
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
    """Why a record of a settled batch was not written, shared by all that this is true of."""
    while outcome._parts is not None:
        outcome, index = outcome._part_of(index)
    if outcome.record_errors is not None:
        return outcome.record_errors.get(index, outcome.error)
    return outcome.error


def _own(error: KafkaError, public: dict[int, KafkaError]) -> KafkaError:
    """A copy for the user, the same one whenever ``error`` comes up in this call.

    A batch keeps its error: what the user raises that through would be kept with it.
    """
    own = public.get(id(error))
    if own is None:
        own = public[id(error)] = copy.copy(error)
        own.__cause__ = error.__cause__
    return own


def _compact(numbers: array[int]) -> Sequence[int]:
    """Ascending numbers, as a range where they follow each other."""
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return range(numbers[0], numbers[-1] + 1)
    return numbers
