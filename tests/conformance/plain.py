"""Messages as plain dicts: every field that the version has, in a form that is readable in a diff.

`run.py` records responses through it. Nothing may be left out here: record batches are split into
their fields, and a correct CRC is shown as such, since it follows from the rest.
"""

from __future__ import annotations

from typing import Any

from kclient.error_codes import ErrorCode
from kclient.protocol.message import Struct
from kclient.record.layout import CRC_START, HEAD, LOG_OVERHEAD, REST, crc32c


def plain(message: Struct, version: int) -> dict[str, Any]:
    """The fields of a message, or a part of one, that exist in `version`."""
    shown: dict[str, Any] = {}
    for field in message.fields():
        if field.first <= version <= field.last:
            value = getattr(message, field.name)
            shown[field.name] = _value(value, field.type.removeprefix("[]"), field.name, version)
    if message.unknown_tags:
        shown["unknown_tags"] = {tag: data.hex() for tag, data in message.unknown_tags.items()}
    return shown


def _value(value: Any, kind: str, name: str, version: int) -> Any:
    if isinstance(value, Struct):
        return plain(value, version)
    if isinstance(value, list):
        return [_value(one, kind, name, version) for one in value]
    if value is None or isinstance(value, str):
        return value
    if kind == "records":
        return batches(bytes(value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if name.endswith("error_code"):
        return code_name(value)
    return value


def code_name(code: int) -> str:
    """Name and number, as `FENCED_LEADER_EPOCH (74)`."""
    return f"{ErrorCode(code).name} ({code})"


def batches(data: bytes) -> list[dict[str, Any]]:
    """Record batches of format v2; a last one that was cut is given in hex."""
    found: list[dict[str, Any]] = []
    start = 0
    while start < len(data):
        if len(data) - start < HEAD.size + REST.size:
            return [*found, {"cut": data[start:].hex()}]
        base_offset, length, leader_epoch, magic, crc = HEAD.unpack_from(data, start)
        end = start + LOG_OVERHEAD + length
        if end > len(data) or magic != 2:
            return [*found, {"cut": data[start:].hex()}]
        computed = crc32c(data[start + CRC_START : end])
        rest = REST.unpack_from(data, start + CRC_START)
        names = (
            "attributes last_offset_delta base_timestamp max_timestamp producer_id "
            "producer_epoch base_sequence record_count"
        )
        found.append(
            {
                "base_offset": base_offset,
                "leader_epoch": leader_epoch,
                "crc": "right" if crc == computed else f"{crc:08x}",
                **dict(zip(names.split(), rest, strict=True)),
                "records": data[start + CRC_START + REST.size : end].hex(),
            }
        )
        start = end
    return found
