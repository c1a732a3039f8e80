"""The records of one ``send_many``, pulled a few at a time from the caller's iterable.

One source, two builds: compiled as ``_record_source_c`` with the C types of its ``.pxd``. Sans-IO.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import cython  # type: ignore[import-untyped]
    from cython.cimports.cpython.bytes import (  # type: ignore[import-untyped]
        PyBytes_GET_SIZE,
    )
else:
    from kclient.record import _cython as cython

BLOCK = 8
"""Most records of a block, so between two reads of the clock, each a third of a record's cost."""


@cython.final
@cython.cclass
class RecordSource:
    """Returns ``records`` in blocks.

    A block ends with the first record that isn't plain: if that record turns out to be invalid, no
    record that was pulled behind it is lost.

    Args:
        records: Iterator that each block is pulled from on demand.
        most_bytes: Most bytes of key and value of a plain record.

    Attributes:
        block: The current records, ``count`` of them; later items are left from earlier blocks.
        count: How many records the block has.
        at: Index of the next record.
        bare: How many of them, from the first on, are values of plain records without a key: those
            can be taken together.
        bare_bytes: Bytes of those values.
        error: The error that ``records`` raised behind the block; the next ``pull`` raises it.
    """

    def __init__(self, records: Iterator[Any], most_bytes: int) -> None:
        self._records = records
        self._most_bytes = most_bytes
        self.error: BaseException | None = None
        self.block: list[Any] = [None] * BLOCK
        self.count = 0
        self.at = 0
        self.bare = 0
        self.bare_bytes = 0

    def hold(self, record: Any) -> None:
        """Replace the block, which is used up, by the single ``record``."""
        self._new_block()
        if cython.compiled:
            self.spread = -1
        self.block[0] = record
        self.count = 1

    def _new_block(self) -> None:
        """Drop the current block."""
        self.count = self.at = self.bare = 0

    def pull(self, most: int) -> int:
        """Replace ``block`` by the next records, at most ``most``; return how many they are.

        An error of ``records`` is raised once the records before it were returned.
        """
        block = self.block
        count = bare = size = 0
        self._new_block()
        error = self.error
        if error is not None:
            self.error = None
            try:
                raise error
            finally:
                del error  # it refers to this frame
        try:
            for record in self._records:
                block[count] = record
                if cython.compiled and self.spread > 0:
                    choose_ahead(self, count, record)  # type: ignore[name-defined] # noqa: F821
                count += 1
                if type(record) is bytes and bare == count - 1:
                    value_size = PyBytes_GET_SIZE(record) if cython.compiled else len(record)
                    if value_size <= self._most_bytes:
                        size += value_size
                        bare = count
                        if count == most:
                            break
                        continue
                if count == most or not self._is_plain(record):
                    break
        except BaseException as raised:
            if count == 0:
                raise
            self.error = raised
        self.bare = bare
        self.bare_bytes = size
        self.count = count
        return count

    def _is_plain(self, record: Any) -> bool:
        """Return whether it is surely valid: bytes, None or a pair of them, and not too large."""
        size = 0
        value = record
        if type(record) is tuple:
            if len(record) != 2:
                return False
            key, value = record
            if type(key) is bytes:
                part = key
                size = len(part)
            elif key is not None:
                return False
        if type(value) is bytes:
            part = value
            size += len(part)
        elif value is not None:
            return False
        return size <= self._most_bytes
