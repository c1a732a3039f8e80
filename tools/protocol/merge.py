"""Unites the definitions of two Kafka releases.

The newer release rules for each version that it has; the older one adds the versions that the
newer dropped. Messages are matched by api key and kind, as some were renamed.
"""

from __future__ import annotations

from dataclasses import replace

from tools.protocol.schema import LATEST, NONE, Definition, Field, Struct, Versions

RECORD_KINDS = ("coordinator-key", "coordinator-value")


def merge_releases(newer: dict[str, Definition], older: dict[str, Definition]) -> list[Definition]:
    """The union of both, without early-access and unstable versions, sorted by name."""
    newer, older = _stable(newer), _stable(older)
    by_key = {(one.api_key, one.kind): one for one in older.values()}
    merged = []
    for definition in newer.values():
        old = older.get(definition.name)
        if definition.api_key is not None:
            old = by_key.get((definition.api_key, definition.kind))
        if old is not None and definition.kind not in RECORD_KINDS:
            definition = _merge(definition, old)
        _find_reach(definition)
        merged.append(definition)
    return sorted(merged, key=lambda one: one.name)


def _stable(definitions: dict[str, Definition]) -> dict[str, Definition]:
    """Without the last version of APIs whose request marks this one as not stable yet."""
    unstable = {one.api_key for one in definitions.values() if one.unstable}
    kept = {}
    for name, one in definitions.items():
        if one.api_key in unstable and one.kind in ("request", "response"):
            valid = Versions(one.valid.first, one.valid.last - 1)
            if valid.empty:
                continue
            one = _cut(one, valid)
        kept[name] = one
    return kept


def _merge(newer: Definition, older: Definition) -> Definition:
    if older.valid.first >= newer.valid.first:
        return newer
    old = _cut(older, Versions(older.valid.first, newer.valid.first - 1))
    structs: dict[str, Struct] = {}
    top = _merge_struct(newer.top, old.top, structs)
    return replace(
        newer,
        valid=newer.valid.union(old.valid),
        flexible=newer.flexible.union(old.flexible),
        top=replace(top, name=newer.top.name),
        structs=list(structs.values()),
    )


def _merge_struct(newer: Struct, older: Struct | None, structs: dict[str, Struct]) -> Struct:
    """Fields in the newer order; those that only the older has keep their place in its order."""
    old_fields = {one.name: one for one in older.fields} if older else {}
    fields = [_merge_field(one, old_fields.get(one.name), structs) for one in newer.fields]
    names = [one.name for one in fields]
    previous = None
    for old in older.fields if older else ():
        if old.name not in names and not old.versions.empty:
            place = names.index(previous) + 1 if previous else 0
            fields.insert(place, _merge_field(old, None, structs))
            names.insert(place, old.name)
        if old.name in names:
            previous = old.name
    return Struct(newer.name, fields)


def _merge_field(newer: Field, older: Field | None, structs: dict[str, Struct]) -> Field:
    struct = newer.struct
    if struct is not None:
        merged = _merge_struct(struct, older.struct if older else None, structs)
        struct = structs.setdefault(struct.name, merged)
    if older is None or older.versions.empty:
        return replace(newer, struct=struct)
    if (newer.type, newer.is_array, newer.tag) != (older.type, older.is_array, older.tag):
        raise ValueError(f"field {newer.name} changed its type between the releases")
    return replace(
        newer,
        struct=struct,
        versions=newer.versions.union(older.versions),
        nullable=newer.nullable.union(older.nullable),
        tagged=newer.tagged.union(older.tagged),
    )


def _cut(definition: Definition, valid: Versions) -> Definition:
    copies: dict[str, Struct] = {}

    def cut_struct(struct: Struct) -> Struct:
        return replace(struct, fields=[cut_field(one) for one in struct.fields])

    def cut_field(one: Field) -> Field:
        struct = one.struct
        if struct is not None:
            struct = copies.setdefault(struct.name, cut_struct(struct))
        return replace(
            one,
            struct=struct,
            versions=one.versions.overlap(valid),
            nullable=one.nullable.overlap(valid),
            tagged=one.tagged.overlap(valid),
        )

    return replace(
        definition,
        valid=valid,
        flexible=definition.flexible.overlap(valid),
        top=cut_struct(definition.top),
        structs=list(copies.values()),
    )


def _find_reach(definition: Definition) -> None:
    """Set in which versions each struct occurs, and drop fields and structs that never do."""
    definition.structs = []

    def visit(struct: Struct, reach: Versions) -> None:
        struct.reach = Versions(
            min(struct.reach.first, reach.first) if not struct.reach.empty else reach.first,
            max(struct.reach.last, reach.last),
        )
        struct.fields = [one for one in struct.fields if not one.versions.empty]
        for one in struct.fields:
            if one.struct is not None:
                one.struct.in_array |= one.is_array
                visit(one.struct, one.versions.overlap(reach))
                if one.struct not in definition.structs:
                    definition.structs.append(one.struct)

    definition.top.reach = NONE
    visit(definition.top, definition.valid)
    if definition.valid.last >= LATEST:
        raise ValueError(f"{definition.name} has no last version")
