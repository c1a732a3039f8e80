"""Which leader epoch began at which offset (KIP-101, KIP-320): the epochs of one log.

Used by ``log.py``; asked by OffsetForLeaderEpoch, ListOffsets and the divergence check of Fetch.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

UNDEFINED = -1
"""No epoch, or no offset."""


class EpochEnd(NamedTuple):
    """The last epoch up to the one asked for, and the offset where it ended."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """Epochs in rising order, each with the offset of its first record."""

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []

    @property
    def latest(self) -> int:
        """The last epoch, -1 if there is none."""
        return self._epochs[-1] if self._epochs else UNDEFINED

    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset) pairs in order."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that ``epoch`` begins at ``start_offset``; epochs without a record give way."""
        if self._epochs and epoch <= self._epochs[-1]:
            return
        while self._starts and self._starts[-1] >= start_offset:
            self._starts.pop()
            self._epochs.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)

    def end_of(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Where ``epoch`` ended, as Kafka answers OffsetForLeaderEpoch."""
        if epoch == UNDEFINED or not self._epochs:
            return EpochEnd(UNDEFINED, UNDEFINED)
        if epoch == self._epochs[-1]:
            return EpochEnd(epoch, log_end_offset)
        higher = bisect_right(self._epochs, epoch)
        if higher == len(self._epochs):
            return EpochEnd(UNDEFINED, UNDEFINED)
        if higher == 0:
            return EpochEnd(epoch, self._starts[0])
        return EpochEnd(self._epochs[higher - 1], self._starts[higher])

    def at(self, offset: int) -> int:
        """The epoch that ``offset`` was, or will be, written in; -1 if none is known."""
        index = bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else UNDEFINED

    def truncate_start(self, offset: int) -> None:
        """Records below ``offset`` are gone: the epoch there now begins at ``offset``."""
        index = bisect_right(self._starts, offset)
        if index == 0:
            return
        del self._epochs[: index - 1]
        del self._starts[: index - 1]
        self._starts[0] = max(self._starts[0], offset)

    def truncate_end(self, offset: int) -> None:
        """Records from ``offset`` on are gone, and so are the epochs that began there."""
        while self._starts and self._starts[-1] >= offset:
            self._starts.pop()
            self._epochs.pop()
