"""Names and types on the Python side: modules, classes, annotations, defaults."""

from __future__ import annotations

from collections import Counter

from tools.protocol.schema import Definition, Field, snake_case

SHARED_MODULES = {
    "RequestHeader": "headers",
    "ResponseHeader": "headers",
    "ConsumerProtocolSubscription": "consumer_protocol",
    "ConsumerProtocolAssignment": "consumer_protocol",
    "ControlRecordTypeSchema": "control_records",
    "EndTxnMarker": "control_records",
}
"""Where definitions go that are not an API's."""

_CLASSIC_GROUPS = ("GroupMetadata", "OffsetCommit")
"""What the embedded cluster writes: apart from other groups' records, which are many more."""

STEPPED = {"MetadataResponse": "topics", "MetadataResponseTopic": "partitions"}
"""Messages that can grow so large that they can be read in steps, and the arrays to step by."""

_INTEGERS = {"int8", "int16", "uint16", "int32", "uint32", "int64"}
_ZERO_UUID = b"\0" * 16


def module_name(definition: Definition) -> str:
    """The module below ``kclient.protocol.messages`` that holds a definition."""
    if definition.kind in ("request", "response"):
        return snake_case(api_name(definition))
    if definition.kind in ("coordinator-key", "coordinator-value"):
        if definition.name.startswith("TransactionLog"):
            return "transaction_log"
        if definition.name.startswith(("ShareSnapshot", "ShareUpdate")):
            return "share_log"
        classic = definition.name.startswith(_CLASSIC_GROUPS)
        return "group_log" if classic else "new_group_log"
    if definition.name not in SHARED_MODULES:
        raise ValueError(f"{definition.name} is new: give it a module in SHARED_MODULES")
    return SHARED_MODULES[definition.name]


def api_name(definition: Definition) -> str:
    """``MetadataRequest`` -> ``Metadata``."""
    return definition.name.removesuffix("Request").removesuffix("Response")


def name_classes(definitions: list[Definition]) -> None:
    """Give each struct of one module its class name: as in Kafka, with its owner's where needed."""
    count = Counter(one.name for one in definitions)
    count.update(struct.name for one in definitions for struct in one.structs)
    for definition in definitions:
        definition.top.python_name = definition.name
        for struct in definition.structs:
            unique = count[struct.name] == 1
            struct.python_name = struct.name if unique else _prefix(definition) + struct.name
    names = [struct.python_name for one in definitions for struct in [*one.structs, one.top]]
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"two classes of one module are called {twice}")


def _prefix(definition: Definition) -> str:
    return {"request": "Request", "response": "Response"}.get(definition.kind, definition.name)


def can_be_none(field: Field) -> bool:
    """Whether None is a value of the field in some version."""
    return not field.nullable.empty or field.type == "records"


def element_type(field: Field) -> str:
    """The annotation of the field, or of an array's elements, without None."""
    if field.struct is not None:
        return field.struct.python_name
    if field.type in _INTEGERS:
        return "int"
    names = {"string": "str", "float64": "float", "bool": "bool", "uuid": "bytes"}
    return {**names, "bytes": "bytes", "records": "Buffer"}[field.type]


def annotation(field: Field) -> str:
    """The annotation of the field's attribute."""
    text = element_type(field)
    if field.is_array:
        text = f"list[{text}]"
    return f"{text} | None" if can_be_none(field) else text


def default(field: Field) -> object:
    """The value of a new message: None, a constant, ``()`` for a fresh list or struct."""
    raw = field.default
    if raw == "null" or field.type == "records":
        return None
    if field.is_array or field.struct is not None:
        return ()
    if field.type == "bool":
        return str(raw).lower() == "true"
    if field.type in _INTEGERS:
        return int(str(raw), 0) if raw not in (None, "") else 0
    if field.type == "float64":
        return float(str(raw)) if raw not in (None, "") else 0.0
    if field.type == "uuid":
        return _ZERO_UUID
    if field.type == "bytes":
        return b""
    return str(raw or "")


def default_source(field: Field) -> str:
    """``default`` as Python source that can stand in a signature or a tuple."""
    value = default(field)
    if value == ():
        return "FRESH"
    return "ZERO_UUID" if value == _ZERO_UUID else source(value)


def fresh_source(field: Field) -> str:
    """An expression that makes a new default."""
    if default(field) != ():
        return default_source(field)
    return "[]" if field.is_array else f"{element_type(field)}()"


def source(value: object) -> str:
    """A constant as Python source, strings in double quotes."""
    if value == _ZERO_UUID:
        return r'b"\0" * 16'
    if value == b"":
        return 'b""'
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value)
