"""Open and aborted transactions of one log: what bounds the last stable offset (KIP-98).

Fed by ``log.py`` with each batch; asked by Fetch for the last stable offset and for the aborted
transactions that overlap what a read_committed reader is given. It runs no transaction itself.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kclient.record.layout import BATCH_HEADER_BYTES
from kclient.testing.stored_batch import StoredBatch

_CONTROL_KEY = struct.Struct(">hh")
_ABORT = 0


class AbortedTransaction(NamedTuple):
    """A transaction that ended with an abort marker at ``last_offset``."""

    producer_id: int
    first_offset: int
    last_offset: int


class TransactionIndex:
    """Of one log: first offsets of the open transactions, and the aborted ones."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._aborted: list[AbortedTransaction] = []

    @property
    def first_open_offset(self) -> int | None:
        """Where the oldest open transaction began; None if none is open."""
        return min(self._open.values()) if self._open else None

    def note(self, batch: StoredBatch) -> None:
        """Take a transactional batch or a marker that was appended."""
        if not batch.is_transactional:
            return
        if not batch.is_control:
            self._open.setdefault(batch.producer_id, batch.base_offset)
            return
        first = self._open.pop(batch.producer_id, None)
        if first is not None and marker_type(batch) == _ABORT:
            self._aborted.append(AbortedTransaction(batch.producer_id, first, batch.base_offset))

    def aborted_between(self, start: int, end: int) -> list[AbortedTransaction]:
        """Aborted transactions with records or their marker in ``start <= offset < end``."""
        return [one for one in self._aborted if one.last_offset >= start and one.first_offset < end]

    def delete_before(self, offset: int) -> None:
        """Forget what lies wholly below ``offset``."""
        self._aborted = [one for one in self._aborted if one.last_offset >= offset]


def marker_type(batch: StoredBatch) -> int:
    """0 of an abort marker, 1 of a commit marker; -1 where the batch holds none.

    A marker is one uncompressed record with a key of version and type (int16 each): one byte each
    for length, attributes, two deltas and the key's length come before the key.
    """
    position = BATCH_HEADER_BYTES + 5
    if batch.codec or len(batch.data) < position + _CONTROL_KEY.size:
        return -1
    _, kind = _CONTROL_KEY.unpack_from(batch.data, position)
    return int(kind)
