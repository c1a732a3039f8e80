"""Which batches of one fetched piece a read_committed reader may not see, sans-IO (KIP-98).

Used by ``fetched_data``. The broker sends, with the records of a partition, the list of aborted
transactions that overlap them: (producer id, first offset). Whatever order that list is in, it is
worked off by offset here. A producer's transaction ends at its marker, so its next one counts anew.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kclient.record import Batch

ABORT_MARKER = 0


class AbortedTransactions:
    """The aborted transactions of one piece, walked along with its batches in offset order."""

    __slots__ = ("_open", "_to_come")

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        """``aborted``: (producer id, first offset) pairs in any order."""
        self._to_come = deque(sorted((first, producer) for producer, first in aborted))
        self._open: set[int] = set()

    def hides(self, batch: Batch) -> bool:
        """Whether the data batch ``batch``, the next in order, belongs to an aborted one."""
        self._reach(batch.last_offset)
        return batch.is_transactional and batch.producer_id in self._open

    def pass_control(self, batch: Batch) -> None:
        """Take note of a control batch: an abort marker in it ends its producer's transaction."""
        self._reach(batch.last_offset)
        if ABORT_MARKER in batch.control_types():
            self._open.discard(batch.producer_id)

    def _reach(self, offset: int) -> None:
        to_come = self._to_come
        while to_come and to_come[0][0] <= offset:
            self._open.add(to_come.popleft()[1])
