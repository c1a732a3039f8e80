"""Reads message definitions: JSON with // comments, inside Apache Kafka's jars."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

from tools.protocol.jars import class_path
from tools.protocol.schema import Definition, Field, Struct, Versions

ARTIFACTS = (
    "kafka-clients",
    "kafka-group-coordinator",
    "kafka-transaction-coordinator",
    "kafka-share-coordinator",
)
"""Jars whose ``common/message`` holds what goes over the wire or into internal topics."""

_STRING_OR_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*')


def read_release(release: str) -> dict[str, Definition]:
    """All definitions of one Kafka release by name, those that it only names left out."""
    found = {}
    for jar in class_path(release):
        if jar.name.removesuffix(f"-{release}.jar") in ARTIFACTS:
            for raw in _read_jar(jar):
                definition = parse(raw)
                if not definition.valid.empty:
                    found[definition.name] = definition
    return found


def parse(raw: dict[str, Any]) -> Definition:
    """One definition as it stands in the JSON, its ranges cut to its valid versions."""
    valid = Versions.parse(raw["validVersions"])
    unstable = bool(raw.get("latestVersionUnstable"))
    shared = {one["name"]: Struct(one["name"], []) for one in raw.get("commonStructs", [])}
    structs: list[Struct] = []
    for one in raw.get("commonStructs", []):
        shared[one["name"]].fields = _fields(one["fields"], valid, shared, structs)
    top = Struct(raw["name"], _fields(raw.get("fields", []), valid, shared, structs))
    return Definition(
        name=raw["name"],
        kind=raw["type"],
        api_key=raw.get("apiKey"),
        valid=valid,
        flexible=Versions.parse(raw.get("flexibleVersions")).overlap(valid),
        top=top,
        structs=structs,
        unstable=unstable,
    )


def _read_jar(jar: Path) -> list[dict[str, Any]]:
    with zipfile.ZipFile(jar) as archive:
        names = sorted(
            name
            for name in archive.namelist()
            if name.startswith("common/message/") and name.endswith(".json")
        )
        return [json.loads(_without_comments(archive.read(name).decode())) for name in names]


def _without_comments(text: str) -> str:
    return _STRING_OR_COMMENT.sub(lambda match: match[1] or "", text)


def _fields(
    raws: list[dict[str, Any]], valid: Versions, shared: dict[str, Struct], structs: list[Struct]
) -> list[Field]:
    return [_field(raw, valid, shared, structs) for raw in raws]


def _field(
    raw: dict[str, Any], valid: Versions, shared: dict[str, Struct], structs: list[Struct]
) -> Field:
    tagged = Versions.parse(raw.get("taggedVersions")).overlap(valid)
    versions = Versions.parse(raw["versions"]).overlap(valid) if "versions" in raw else tagged
    kind = raw["type"].removeprefix("[]")
    struct = None
    if kind[0].isupper():
        struct = shared.get(kind) or Struct(kind, _fields(raw["fields"], valid, shared, structs))
        if struct not in structs:
            structs.append(struct)
    own_flexible = raw.get("flexibleVersions")
    if own_flexible not in (None, "none"):
        raise ValueError(f"field {raw['name']} has flexibleVersions {own_flexible}")
    if not tagged.empty and tagged != versions:
        raise ValueError(f"field {raw['name']} is tagged in some of its versions only")
    return Field(
        name=raw["name"],
        type=kind,
        is_array=raw["type"].startswith("[]"),
        versions=versions,
        nullable=Versions.parse(raw.get("nullableVersions")).overlap(versions),
        tagged=tagged,
        tag=int(raw["tag"]) if "tag" in raw else None,
        ignorable=bool(raw.get("ignorable", False)),
        default=raw.get("default"),  # JSON's own null counts as no default, as in Kafka
        never_compact=own_flexible == "none",
        about=raw.get("about", ""),
        struct=struct,
    )
