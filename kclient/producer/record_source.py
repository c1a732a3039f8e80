"""The records of one ``send_many``, taken a few at a time from what the user iterates.

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
"""Records of a block at most, so between two looks at the clock, which cost a third of one each."""


@cython.final
@cython.cclass
class RecordSource:
    """Hands out ``records`` in blocks.

    A block ends with the first record that isn't plain: when that turns out to be wrong, nothing is
    lost that was pulled behind it.

    Args:
        records: Pulled from as blocks are wanted.
        most_bytes: Of key and value of a record that is plain.

    Attributes:
        block: The records at hand, ``count`` of them; what follows is left from before.
        count: How many they are.
        at: Which of them is the next one.
        bare: How many of them, from the first on, are values of plain records without a key: those
            can be taken together.
        bare_bytes: Of those values.
        error: What ``records`` raised behind the block; the next ``pull`` raises it.
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
        """Have ``record`` be the block, which is used up."""
        self._new_block()
        if cython.compiled:
            self.spread = -1
        self.block[0] = record
        self.count = 1

    def _new_block(self) -> None:
        """Forget the one before."""
        self.count = self.at = self.bare = 0

    def pull(self, most: int) -> int:
        """Put the next records, ``most`` at most, in place of ``block``; how many they are.

        What ``records`` raises is raised once those before it were handed out.
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
                del error  # it knows this frame
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
        """Nothing can be wrong with it: bytes or None, or a pair of them, and not too large."""
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
