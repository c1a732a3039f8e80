"""Emits one class: its docstring, slots, field table and constructor."""

from __future__ import annotations

from tools.protocol import layout
from tools.protocol.emit_read import emit_reader
from tools.protocol.emit_write import emit_writer
from tools.protocol.schema import Definition, Field, Struct, Versions
from tools.protocol.source import WIDTH, Names, Source

_BASES = {"request": "Request", "response": "Response"}
_TITLES = {
    "request": "Request of the {api} API (key {key}), versions {versions}.",
    "response": "Response of the {api} API (key {key}), versions {versions}.",
    "header": "Header that goes before each message, versions {versions}.",
    "data": "{name}, versions {versions}.",
    "coordinator-key": "Key of type {key} records in an internal topic, versions {versions}.",
    "coordinator-value": "Value of type {key} records in an internal topic, versions {versions}.",
}


def emit_class(out: Source, names: Names, definition: Definition, struct: Struct) -> None:
    """Append the class of ``struct``; of the message itself where it is its top struct."""
    with out.block(f"class {struct.python_name}({_base(names, definition, struct)}):"):
        _emit_docstring(out, definition, struct)
        out.add("")
        _emit_slots(out, struct)
        if struct is definition.top:
            _emit_constants(out, definition)
        _emit_field_table(out, struct)
        out.add("")
        _emit_init(out, names, struct)
        out.add("")
        emit_reader(out, names, definition, struct)
        out.add("")
        emit_writer(out, names, definition, struct)


def _base(names: Names, definition: Definition, struct: Struct) -> str:
    if struct is not definition.top:
        return names.helper("Struct")
    if definition.kind.startswith("coordinator-"):
        return names.helper("LogRecord")
    if definition.name in layout.STEPPED:
        return names.helper("SteppedResponse")
    return names.helper(_BASES.get(definition.kind, "Message"))


def _emit_docstring(out: Source, definition: Definition, struct: Struct) -> None:
    if struct is definition.top:
        title = _TITLES[definition.kind].format(
            api=layout.api_name(definition),
            key=definition.api_key,
            name=definition.name,
            versions=_range_text(definition.valid),
        )
    else:
        title = f"Part of {definition.name}."
    if not struct.fields:
        out.add(f'"""{title}"""')
        return
    out.add(f'"""{title}', "")
    with out.block("Attributes:"):
        for field in struct.fields:
            out.add_text(f"{field.attribute}: {_about(definition, field)}", indent="    ")
    out.add('"""')


def _about(definition: Definition, field: Field) -> str:
    text = " ".join(field.about.replace("\\", "\\\\").split())
    text = text if not text or text.endswith(".") else f"{text}."
    if field.versions != definition.valid:
        text += f" Versions {_range_text(field.versions)}."
    if not field.nullable.empty and field.nullable != field.versions:
        text += f" None from version {field.nullable.first}."
    return text.strip() or "See Kafka's protocol guide."


def _range_text(versions: Versions) -> str:
    if versions.first == versions.last:
        return str(versions.first)
    return f"{versions.first} to {versions.last}"


def _emit_slots(out: Source, struct: Struct) -> None:
    quoted = [f'"{field.attribute}"' for field in struct.fields]
    tail = ",)" if len(quoted) == 1 else ")"
    out.add_listed("__slots__ = (", quoted, tail)
    out.add(*(f"{field.attribute}: {layout.annotation(field)}" for field in struct.fields))


def _emit_constants(out: Source, definition: Definition) -> None:
    if definition.kind.startswith("coordinator-"):
        out.add(f"RECORD_TYPE = {definition.api_key}")
        out.add(f'NAME = "{definition.name}"')
    elif definition.kind in _BASES:
        out.add(f"API_KEY = {definition.api_key}")
        out.add(f'NAME = "{layout.api_name(definition)}"')
    else:
        out.add(f'NAME = "{definition.name}"')
    flexible = None if definition.flexible.empty else definition.flexible.first
    out.add(
        f"MIN_VERSION = {definition.valid.first}",
        f"MAX_VERSION = {definition.valid.last}",
        f"FIRST_FLEXIBLE = {flexible}",
    )
    if definition.kind == "request":
        out.add(f"RESPONSE = {layout.api_name(definition)}Response")
    if definition.zero_copy:
        out.add("_ZERO_COPY = True")


def _emit_field_table(out: Source, struct: Struct) -> None:
    if not struct.fields:
        out.add("_FIELDS = ()")
        return
    with out.block("_FIELDS = ("):
        for field in struct.fields:
            cells = _field_row(field)
            line = f"({', '.join(cells)}),"
            if len(line) <= WIDTH - 8:
                out.add(line)
                continue
            with out.block("("):
                out.add(f"{', '.join(cells[:2])},", f"{', '.join(cells[2:])},")
            out.add("),")
    out.add(")")


def _field_row(field: Field) -> list[str]:
    """In the order of ``kclient.protocol.message.FieldSpec``."""
    kind = field.struct.python_name if field.struct else field.type
    value = layout.default(field)
    return [
        f'"{field.attribute}"',
        f'"{"[]" if field.is_array else ""}{kind}"',
        *(str(number) for number in (*field.versions, *field.nullable)),
        str(field.tag),
        str(field.ignorable),
        str(field.never_compact),
        layout.source(value),
    ]


def _emit_init(out: Source, names: Names, struct: Struct) -> None:
    with out.block("def __init__("):
        out.add("self,")
        for field in struct.fields:
            text = layout.default_source(field)
            if text in ("FRESH", "ZERO_UUID"):
                names.helper(text)
            out.add(f"{field.attribute}: {layout.annotation(field)} = {text},")
        out.add("unknown_tags: dict[int, bytes] | None = None,")
    with out.block(") -> None:"):
        for field in struct.fields:
            name = field.attribute
            if layout.default(field) == ():
                fresh = layout.fresh_source(field)
                out.add(f"self.{name} = {fresh} if {name} is FRESH else {name}")
            else:
                out.add(f"self.{name} = {name}")
        out.add("self.unknown_tags = unknown_tags")
