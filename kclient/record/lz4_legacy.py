"""The lz4 framing that Kafka wrote into v0 messages, whose header checksum is wrong (KAFKA-3160).

It was computed over the magic number, too. Java ignores it in v0; ``legacy.py`` has it set right
here before the payload is inflated.
"""

from __future__ import annotations

_MAGIC_BYTES = 4
_FIXED_DESCRIPTOR_BYTES = 2
_CONTENT_SIZE_FLAG = 0x08
_CONTENT_SIZE_BYTES = 8
_DICTIONARY_FLAG = 0x01
_DICTIONARY_BYTES = 4

_PRIME_1 = 0x9E3779B1
_PRIME_2 = 0x85EBCA77
_PRIME_3 = 0xC2B2AE3D
_PRIME_4 = 0x27D4EB2F
_PRIME_5 = 0x165667B1
_MASK = 0xFFFFFFFF


def mended_frame(data: bytes | memoryview) -> bytes:
    """``data`` with the header checksum that the lz4 frame format wants."""
    frame = bytearray(data)
    end = _MAGIC_BYTES + _FIXED_DESCRIPTOR_BYTES
    if len(frame) > end:
        flags = frame[_MAGIC_BYTES]
        end += _CONTENT_SIZE_BYTES if flags & _CONTENT_SIZE_FLAG else 0
        end += _DICTIONARY_BYTES if flags & _DICTIONARY_FLAG else 0
    if len(frame) > end:
        frame[end] = header_checksum(frame[_MAGIC_BYTES:end])
    return bytes(frame)


def header_checksum(descriptor: bytes | bytearray) -> int:
    """The second byte of the xxHash32 of a frame descriptor (which has less than 16 bytes)."""
    value = (_PRIME_5 + len(descriptor)) & _MASK
    pos = 0
    while len(descriptor) - pos >= 4:
        word = int.from_bytes(descriptor[pos : pos + 4], "little")
        value = _rotated((value + word * _PRIME_3) & _MASK, 17) * _PRIME_4 & _MASK
        pos += 4
    for byte in descriptor[pos:]:
        value = _rotated((value + byte * _PRIME_5) & _MASK, 11) * _PRIME_1 & _MASK
    value ^= value >> 15
    value = value * _PRIME_2 & _MASK
    value ^= value >> 13
    value = value * _PRIME_3 & _MASK
    value ^= value >> 16
    return value >> 8 & 0xFF


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> 32 - by) & _MASK
