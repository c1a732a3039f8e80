"""Where zstd frames begin and end (RFC 8878): what the package does not tell for a broken stream.

``inflate.py`` walks the block headers first, so that a payload which ends in the middle, or has
bytes behind its last frame, is an error and not a short result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.errors import DecompressionFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAGIC = 0xFD2FB528
_SKIPPABLE_MAGIC = 0x184D2A50
_SKIPPABLE_MASK = 0xFFFFFFF0
_DICTIONARY_ID_BYTES = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_RLE_BLOCK = 1


def zstd_frames(data: bytes) -> Iterator[tuple[int, int]]:
    """Start and end of each data frame; skippable frames are passed over.

    Raises:
        DecompressionFailed: The bytes are not whole frames.
    """
    pos = 0
    while pos < len(data):
        magic = _little(data, pos, 4)
        if magic & _SKIPPABLE_MASK == _SKIPPABLE_MAGIC:
            pos += 8 + _little(data, pos + 4, 4)
            if pos > len(data):
                raise _broken("a skippable frame ends in the middle")
            continue
        if magic != _MAGIC:
            raise _broken(f"no frame begins at byte {pos}")
        end = _frame_end(data, pos)
        yield pos, end
        pos = end


def _frame_end(data: bytes, start: int) -> int:
    descriptor = _little(data, start + 4, 1)
    single_segment = descriptor & 0x20
    content_size_bytes = _CONTENT_SIZE_BYTES[descriptor >> 6]
    if single_segment:
        content_size_bytes = content_size_bytes or 1
    pos = start + 5 + (0 if single_segment else 1)
    pos += _DICTIONARY_ID_BYTES[descriptor & 3] + content_size_bytes
    last = 0
    while not last:
        block = _little(data, pos, 3)
        last = block & 1
        pos += 3 + (1 if block >> 1 & 3 == _RLE_BLOCK else block >> 3)
    if descriptor & 4:
        pos += 4
    if pos > len(data):
        raise _broken("a frame ends in the middle")
    return pos


def _little(data: bytes, pos: int, size: int) -> int:
    if pos + size > len(data):
        raise _broken("a frame ends in the middle")
    return int.from_bytes(data[pos : pos + size], "little")


def _broken(what: str) -> DecompressionFailed:
    return DecompressionFailed(f"the payload is not zstd: {what}")
