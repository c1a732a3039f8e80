"""Compares a message with the JSON that Kafka makes of the same bytes, field by field."""

from __future__ import annotations

import base64
from typing import Any

from kclient.protocol.message import FieldSpec, Struct
from tools.protocol.schema import snake_case


def differences(message: Struct, version: int, json: dict[str, Any], path: str = "") -> list[str]:
    """One line for each field in which ``message`` is not what the JSON says."""
    path = path or type(message).__name__
    seen = {snake_case(name): value for name, value in json.items()}
    found = []
    for field in message.fields():
        value = getattr(message, field.name)
        where = f"{path}.{field.name}"
        if field.type == "records" and field.first <= version <= field.last:
            size = seen.pop("records_size_in_bytes", seen.pop(f"{field.name}_size_in_bytes", None))
            seen.pop(field.name, None)
            if size != (None if value is None else len(value)):
                found.append(f"{where} has {value!r}, Kafka {size} bytes")
        elif field.name in seen:
            found += _compare(value, version, seen.pop(field.name), field, where)
        elif field.first <= version <= field.last and field.tag is None:
            found.append(f"{where} is not in Kafka's JSON")
        elif not _is_default(value, field):
            found.append(f"{where} is {value!r}, but Kafka leaves it at its default")
    found += [f"{path}.{name} is not known to us" for name in seen]
    return found


def _compare(value: Any, version: int, json: Any, field: FieldSpec, where: str) -> list[str]:
    if isinstance(json, list):
        if not isinstance(value, list) or len(value) != len(json):
            return [f"{where} has another length"]
        pairs = enumerate(zip(value, json, strict=True))
        element = field._replace(type=field.type.removeprefix("[]"))
        return [
            line
            for index, (ours, theirs) in pairs
            for line in _compare(ours, version, theirs, element, f"{where}[{index}]")
        ]
    if isinstance(json, dict):
        if not isinstance(value, Struct):
            return [f"{where} is {value!r}, not a struct"]
        return differences(value, version, json, where)
    expected = _expected(json, field.type)
    same = value == expected and type(value) is type(expected)
    return [] if same else [f"{where} is {value!r}, Kafka has {expected!r}"]


def _expected(json: Any, kind: str) -> Any:
    if json is None:
        return None
    if kind == "bytes":
        return base64.b64decode(json)
    if kind == "uuid":
        return base64.urlsafe_b64decode(json + "==")
    return float(json) if kind == "float64" else json


def _is_default(value: Any, field: FieldSpec) -> bool:
    if field.default != ():
        return bool(value == field.default)
    fresh = [] if field.type.startswith("[]") else type(value)()
    return bool(value == fresh)
