"""The lz4 framing that Kafka wrote into v0 messages, whose header checksum is wrong (KAFKA-3160).

The checksum was computed over the magic number, too. ``legacy.py`` passes such frames through here
before they are inflated; frames that are right stay as they are.
"""

from __future__ import annotations

_MAGIC_BYTES = 4
_FIXED_DESCRIPTOR_BYTES = 2
_CONTENT_SIZE_FLAG = 0x08
_CONTENT_SIZE_BYTES = 8
_DICTIONARY_FLAG = 0x01
_DICTIONARY_BYTES = 4

_PRIME_2 = 0x85EBCA77
_PRIME_3 = 0xC2B2AE3D
_PRIME_4 = 0x27D4EB2F
_PRIME_5 = 0x165667B1
_PRIME_1 = 0x9E3779B1
_MASK = 0xFFFFFFFF
_XXH32_BLOCK = 16


def mended_frame(data: bytes | memoryview) -> bytes:
    """``data`` with the checksum of its header as the lz4 frame format wants it."""
    frame = bytearray(data)
    if len(frame) <= _MAGIC_BYTES + _FIXED_DESCRIPTOR_BYTES:
        return bytes(frame)
    flags = frame[_MAGIC_BYTES]
    end = _MAGIC_BYTES + _FIXED_DESCRIPTOR_BYTES
    end += _CONTENT_SIZE_BYTES if flags & _CONTENT_SIZE_FLAG else 0
    end += _DICTIONARY_BYTES if flags & _DICTIONARY_FLAG else 0
    if end < len(frame):
        right = header_checksum(frame[_MAGIC_BYTES:end])
        # Only Kafka's own mistake is mended: a checksum wrong in another way stays wrong.
        if frame[end] == _kafka_checksum(frame[:end]):
            frame[end] = right
    return bytes(frame)


def header_checksum(descriptor: bytes | bytearray) -> int:
    """The lz4 frame format's: the second byte of the descriptor's xxHash32."""
    return xxh32(descriptor) >> 8 & 0xFF


def _kafka_checksum(magic_and_descriptor: bytes | bytearray) -> int:
    return xxh32(magic_and_descriptor) >> 8 & 0xFF


def xxh32(data: bytes | bytearray) -> int:
    """xxHash32 with seed 0."""
    pos = 0
    if len(data) >= _XXH32_BLOCK:
        lanes = [(_PRIME_1 + _PRIME_2) & _MASK, _PRIME_2, 0, (-_PRIME_1) & _MASK]
        while len(data) - pos >= _XXH32_BLOCK:
            for index in range(4):
                word = int.from_bytes(data[pos : pos + 4], "little")
                mixed = (lanes[index] + word * _PRIME_2) & _MASK
                lanes[index] = _rotated(mixed, 13) * _PRIME_1 & _MASK
                pos += 4
        value = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        value = _PRIME_5
    value = (value + len(data)) & _MASK
    while len(data) - pos >= 4:
        word = int.from_bytes(data[pos : pos + 4], "little")
        value = _rotated((value + word * _PRIME_3) & _MASK, 17) * _PRIME_4 & _MASK
        pos += 4
    for byte in data[pos:]:
        value = _rotated((value + byte * _PRIME_5) & _MASK, 11) * _PRIME_1 & _MASK
    value ^= value >> 15
    value = value * _PRIME_2 & _MASK
    value ^= value >> 13
    value = value * _PRIME_3 & _MASK
    return value ^ value >> 16


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> 32 - by) & _MASK
