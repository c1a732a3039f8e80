"""Properties files of Java's and librdkafka's clients, read as settings.

``Settings.from_properties`` calls it. Names are translated by ``foreign_settings``; what has no
meaning here is named in the log, and what would weaken security is refused. ``security`` of the
result is made by ``security_properties``. Values are never logged, as they may be secrets.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from kclient import serializers
from kclient.durations import MAX_SECONDS
from kclient.errors import InvalidConfig, a_or_an
from kclient.foreign_settings import TABLE, counterpart, normalised
from kclient.hooks import NamedPlugIn

if TYPE_CHECKING:
    from kclient.settings import Settings

S = TypeVar("S", bound="Settings")
logger = logging.getLogger("kclient.config")

Value = str | int | float | bool
Source = Mapping[str, Value] | str | os.PathLike[str]
"""Names and values, or the path of a file."""

_LEAST_LIKENESS = 0.9
"""Of an unknown name and a known one, from which on it is taken for a slip."""
_BYTES = {"ByteArray", "ByteBuffer", "Bytes"}
_SERIALIZERS: dict[str, Any] = {
    "Double": serializers.FloatSerializer(),
    "Float": serializers.FloatSerializer(4),
    "Integer": serializers.IntegerSerializer(4),
    "Long": serializers.IntegerSerializer(),
    "Short": serializers.IntegerSerializer(2),
    "String": serializers.StringSerializer(),
    "UUID": serializers.UUIDSerializer(),
    **dict.fromkeys(_BYTES),
}
_INTEGERS = serializers.IntegerDeserializer()
_DESERIALIZERS: dict[str, Any] = {
    "Double": serializers.FloatDeserializer(),
    "Float": serializers.FloatDeserializer(4),
    "Integer": _INTEGERS,
    "Long": _INTEGERS,
    "Short": _INTEGERS,
    "String": serializers.StringDeserializer(),
    "UUID": serializers.UUIDDeserializer(),
    **dict.fromkeys(_BYTES),
}
_KAFKAS_OWN = "org.apache.kafka.common.serialization."
_ASSIGNORS = {
    "CooperativeStickyAssignor": "cooperative-sticky",
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
}
_RESETS = {
    "beginning": "earliest",
    "end": "latest",
    "error": "none",
    "largest": "latest",
    "smallest": "earliest",
}
_LIKE_OURS = {"", "murmur2", "murmur2_random"}
"""Partitioners of librdkafka that choose as ours does."""
_OF_LIBRDKAFKA = {
    "delivery_report_only_error",
    "message_timeout_ms",
    "metadata_broker_list",
    "queue_buffering_max_kbytes",
    "queue_buffering_max_messages",
    "queue_buffering_max_ms",
    "statistics_interval_ms",
}
"""Settings of producers by which its files are known."""
_SWITCHED_OFF = {
    "connections_max_idle_ms": 0.0,
    "message_timeout_ms": 0.0,
    "topic_metadata_refresh_interval_ms": -1.0,
}
"""Durations for which so much or less means that there is no limit."""
_ADDRESSES = ("bootstrap_servers", "metadata_broker_list")
_MAX_INT = 2**31 - 1
"""Of Java and librdkafka; as a size, it asks for as much as can be had."""
_CALLBACKS = {
    "dr_cb": "await a Delivery, or give it a function by add_done_callback",
    "dr_msg_cb": "await a Delivery, or give it a function by add_done_callback",
    "error_cb": "errors are raised where you await; health() and observers= have the others",
    "on_delivery": "await a Delivery, or give it a function by add_done_callback",
    "throttle_cb": "observers= get an event",
}
"""What is there in place of callbacks, where ``foreign_settings`` doesn't say it in full."""
OF_THE_PRODUCER = {
    *("acks", "batch_size", "buffer_memory", "compression", "compression_level"),
    *("delivery_timeout", "idempotence", "key_serializer", "linger", "max_block"),
    *("max_request_size", "partitioner", "transaction_timeout", "transactional_id"),
    "value_serializer",
}
"""Our settings and arguments that no other client has, but for the next table."""
_OWNERS = {
    "buffer_memory": "Producer",
    "fetch_error_backoff_ms": "Consumer",
    "queue_buffering_max_kbytes": "Producer",
    "queued_max_messages_kbytes": "Consumer",
    "rebalance_timeout_ms": "GroupMember",
}
"""Properties of one client whose counterpart here others have, too, or that are GroupMember's."""
_ONLY_LIKE = {
    "fetch_error_backoff_ms",
    "socket_timeout_ms",
    "topic_metadata_refresh_interval_ms",
}
"""Settings of librdkafka that stand beside Kafka's there, where one here is for both."""
_MARKS = {"linger": "Producer", "max_poll_records": "Consumer", "rebalance_timeout": "GroupMember"}
"""Settings by which the class of a client is known; this module must not import it."""
_GROWING = (
    ("reconnect_backoff", "reconnect_backoff_max"),
    ("retry_backoff", "retry_backoff_max"),
    ("connection_setup_timeout", "connection_setup_timeout_max"),
)
"""Settings and their bounds, which Java raises where only the first is given."""


def config_from(source: Source, config: type[S]) -> S:
    """Return the settings of class ``config`` that ``source`` has, and log what has no meaning.

    Raises:
        InvalidConfig: The file can't be read, a value can't be used, a name is nearly a known
            one, or security would be less than what ``source`` asks for.
    """
    pairs = pairs_of(source)
    path = "" if isinstance(source, Mapping) else os.fspath(source)
    title = f"{config.__name__}.from_properties" + (path and f" of {path}")
    try:
        return config(**_Reader(config, title).read(pairs))
    except InvalidConfig as error:
        if not path:
            raise
        raise InvalidConfig(f"{path}: {error.message}", hint=error.hint) from error


class _Reader:
    """Reads the properties of one source as settings of one class, name by name.

    Args:
        config: The class.
        title: Begin of log lines.
    """

    def __init__(self, config: type[Settings], title: str) -> None:
        self._title = title
        self._fields = {field.name: field for field in dataclasses.fields(config)}
        self._client = next((_MARKS[name] for name in _MARKS if name in self._fields), "Admin")
        self._found: dict[str, Any] = {}
        self._names: dict[str, str] = {}
        """The property that each of ``_found`` is from."""
        self._levels: dict[str, int] = {}
        self._unknown: list[str] = []
        self._unused: dict[str, str] = {}
        self._of_others: dict[str, list[str]] = {}

    def read(self, pairs: Mapping[str, Value]) -> dict[str, Any]:
        """Return the settings by our names, and log what is no setting of the class."""
        from kclient.security_properties import is_of_security, security_from

        secured: dict[str, str] = {}
        for name, value in pairs.items():
            if is_of_security(normalised(name)):
                secured[name] = str(value).strip()
            else:
                self._take(name, value)
        names = {normalised(name): name for name in pairs}
        bootstrap = ",".join(str(pairs[names[key]]) for key in _ADDRESSES if key in names)
        security = security_from(secured, self._unused, bootstrap)
        if security is not None:
            self._found["security"] = security
        if "enable_auto_offset_store" in names and self._client == "Consumer":
            name = names["enable_auto_offset_store"]
            self._check_stored_offsets(name, str(pairs[name]).strip())
        _fit_together(self._found, self._fields, self._levels)
        self._log(names)
        return self._found

    def _take(self, name: str, value: Value) -> None:
        """Put one property where it belongs."""
        key, row = normalised(name), counterpart(name)
        if row is None:
            _refuse_slip(name, self._fields)
            self._unknown.append(name)
            return
        ours, owner = row.ours, _OWNERS.get(key)
        if ours is None:
            self._unused[name] = row.note
        elif ours in ("dialer", "observers", "topics"):
            self._unused[name] = f"give {ours}="
        elif owner not in (None, self._client) or not self._has(ours):
            owner = owner or ("Producer" if ours in OF_THE_PRODUCER else "Consumer")
            self._of_others.setdefault(owner, []).append(name)
        elif ours == "partitioner":
            _check_partitioner(name, str(value).strip())
        elif ours == "compression_level":
            if str(value).strip() != "-1":
                self._levels[key] = int(_number(name, value))
        elif key == "group_protocol" and str(value).strip().lower() == "consumer":
            self._unused[name] = "groups are joined by the classic protocol"
        else:
            self._put(name, ours, _converted(name, key, value, self._fields[ours]))

    def _has(self, ours: str) -> bool:
        return ours in self._fields or (ours == "partitioner" and self._client == "Producer")

    def _put(self, name: str, ours: str, value: Any) -> None:
        other = self._names.get(ours, name)
        if other != name and self._found[ours] != value:
            if normalised(name) in _ONLY_LIKE:
                self._unused[name] = f"{other} is given"
                return
            if normalised(other) not in _ONLY_LIKE:
                raise InvalidConfig(
                    f"{other} and {name} are the same setting here, {ours}, and their values "
                    "differ: take one out"
                )
            self._unused[other] = f"{name} is given"
        self._names[ours], self._found[ours] = name, value

    def _check_stored_offsets(self, name: str, value: str) -> None:
        """Refuse automatic commits where the application wants to say what is finished."""
        if value.lower() != "false":
            return
        if self._found.get("enable_auto_commit", True):
            raise InvalidConfig(
                f"{name}={value} can't be used: records would be committed that are not stored",
                hint="set enable.auto.commit=false, and commit what is finished by "
                "`await consumer.commit(record)`",
            )
        self._unused[name] = "commit what is finished by commit(record)"

    def _log(self, names: Collection[str]) -> None:
        """Log what was not used; ``names`` are all that were given, normalised."""
        if self._unknown:
            listed = ", ".join(sorted(self._unknown))
            logger.warning("%s: unknown, and ignored: %s", self._title, listed)
        if self._client == "Producer" and "partitioner" not in names:
            if not _OF_LIBRDKAFKA.isdisjoint(names):
                logger.warning(
                    "%s: librdkafka's default partitioner puts records with a key into other "
                    "partitions than ours; for the same give "
                    "partitioner=kclient.partitioners.ConsistentRandom()",
                    self._title,
                )
        parts = [
            f"of the {owner}: {', '.join(sorted(listed))}"
            for owner, listed in sorted(self._of_others.items())
        ]
        if self._unused:
            listed = ", ".join(f"{name} ({why})" for name, why in sorted(self._unused.items()))
            parts.append(f"without meaning here: {listed}")
        if parts:
            logger.info("%s: %s", self._title, "; ".join(parts))


def pairs_of(source: Source) -> Mapping[str, Value]:
    """The names and values of a file, or those given.

    Raises:
        InvalidConfig: The file can't be read, or a name or value is of a wrong type.
    """
    if isinstance(source, Mapping):
        bad = {
            name: value
            for name, value in source.items()
            if not isinstance(name, str) or not isinstance(value, str | int | float)
        }
        if bad:
            raise _refused_types(bad)
        return source
    if not isinstance(source, str | os.PathLike):
        raise InvalidConfig(
            f"properties can't be {type(source).__name__}: allowed is a mapping or the path of a "
            "file"
        )
    try:
        with open(source, "rb") as file:
            raw = file.read()
    except (OSError, ValueError) as error:  # the first has the path in its text
        raise InvalidConfig(f"the properties can't be read: {error}") from error
    if b"\0" in raw:
        raise InvalidConfig(
            "the properties have NUL bytes: allowed is a text file in UTF-8",
            hint="was it written as UTF-16, as PowerShell's > does?",
        )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")  # as Java reads them
    return parse(text)


def _refused_types(bad: Mapping[Any, object]) -> InvalidConfig:
    """The error for names and values that a file couldn't have, and what to do instead."""
    listed = ", ".join(f"{name!r}, {a_or_an(type(value).__name__)}" for name, value in bad.items())
    instead = [(name, _instead(name)) for name in bad]
    advice = [f"for {name}: {what}" for name, what in instead if what]
    return InvalidConfig(
        f"properties hold {listed}: names are str, and for values allowed are str, int, float and "
        "bool",
        hint="; ".join(["callbacks and objects are to be left out", *advice]) if advice else None,
    )


def _instead(name: object) -> str | None:
    """What there is in place of a callback or an object; None for a plain setting."""
    row = counterpart(name) if isinstance(name, str) else None
    if row is None:
        return None
    if row.ours is None or normalised(str(name)) in _CALLBACKS:
        return _CALLBACKS.get(normalised(str(name)), row.note)
    if row.ours in ("dialer", "observers", "partitioner") or row.ours.endswith("serializer"):
        return f"give {row.ours}= to the client" + (row.note and f", {row.note}")
    return None


_KEY = re.compile(r"((?:\\.|[^\\\s=:])*)(?:\s*[=:]\s*|\s+|$)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse(text: str) -> dict[str, str]:
    r"""Return the names and values of a file in the format of ``java.util.Properties``.

    ``#`` and ``!`` begin comments, ``=``, ``:`` or blanks end a name, a backslash at the end of a
    line continues it, and ``\n``, ``\t``, ``\u00e9`` and so on are escapes.
    """
    pairs = {}
    for line in _lines(text):
        found = _KEY.match(line)
        if found is None:  # a single backslash at the end of the file
            continue
        pairs[_unescaped(found[1])] = _unescaped(line[found.end() :])
    return pairs


def _lines(text: str) -> list[str]:
    """Logical lines: without comments and blank ones, with continuations joined."""
    lines: list[str] = []
    open_ended = False
    for raw in re.split(r"\r\n|\n|\r", text):
        line = raw.lstrip(" \t\f")
        if not open_ended and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        goes_on = backslashes % 2 == 1
        part = line[:-1] if goes_on else line
        if open_ended:
            lines[-1] += part
        else:
            lines.append(part)
        open_ended = goes_on
    return lines


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(
        lambda found: chr(int(found[1], 16)) if found[1] else _CONTROLS.get(found[2], found[2]),
        text,
    )


def _refuse_slip(name: str, fields: Mapping[str, dataclasses.Field[Any]]) -> None:
    """Refuse a name that is nearly one of the settings at hand, or our own name of one."""
    if name in fields:
        kafka = fields[name].metadata["kafka"]
        raise InvalidConfig(
            f"{name} is no property: those have Kafka's names",
            hint=f"give it to the client as {name}=" + (f", or {kafka!r} here" if kafka else ""),
        )
    known = {normalised(field.metadata["kafka"] or own): own for own, field in fields.items()}
    known |= {key: row.ours for key, row in TABLE.items() if row.ours in fields and row.ours}
    near = _nearest(normalised(name), known)
    if near is not None:
        meant = fields[known[near]].metadata["kafka"] or near.replace("_", ".")
        raise InvalidConfig(f"there is no setting {name!r}: did you mean {meant!r}?")


def _nearest(key: str, known: Collection[str]) -> str | None:
    """The known name that is one slip away, or alike as a whole where names are long."""
    import difflib

    near = [one for one in known if _one_slip(key, one)]
    near = near or difflib.get_close_matches(key, known, 1, _LEAST_LIKENESS)
    return near[0] if near else None


def _one_slip(one: str, other: str) -> bool:
    """Whether a letter is missing, too many or wrong, or two neighbours are swapped."""
    short, long = sorted((one, other), key=len)
    same = next((i for i, letter in enumerate(short) if letter != long[i]), len(short))
    short, long = short[same:], long[same:]
    return long[1:] in (short, short[1:]) or short[1::-1] + short[2:] == long


def _check_partitioner(name: str, value: str) -> None:
    if value not in _LIKE_OURS:
        raise InvalidConfig(
            f"{name}={value!r} can't be used: records with a key would go to other partitions",
            hint="take it out, and give the client an object with partition() as partitioner=; "
            "librdkafka's consistent_random is kclient.partitioners.ConsistentRandom()",
        )


def _converted(name: str, key: str, value: Value, field: dataclasses.Field[Any]) -> Any:
    """Return what one property is for our setting ``field``."""
    ours, text = field.name, str(value).strip()
    if ours.endswith("serializer"):
        return _serializer(name, text, ours)
    converted = _value(name, key, value, field)
    as_given = str(converted) == text
    try:
        return field.metadata["check"](name if as_given else f"{name}={value!r}: {ours}", converted)
    except InvalidConfig as error:
        # None is nothing that a file can hold.
        message = error.message.replace(" None,", "").replace(", or None", "")
        # Hints about seconds in place of milliseconds are for values that were not converted.
        raise InvalidConfig(message, hint=error.hint if as_given else None) from None


def _value(name: str, key: str, value: Value, field: dataclasses.Field[Any]) -> Any:
    ours, text = field.name, str(value).strip()
    if isinstance(field.default, bool):
        if text.lower() not in ("true", "false"):
            raise InvalidConfig(f"{name}={value!r} can't be used: allowed is true or false")
        return text.lower() == "true"
    if "float" in str(field.type):
        return _seconds(name, key, value, field)
    if ours in ("send_buffer", "receive_buffer"):
        size = int(_number(name, value))
        return size if size > 0 else None  # Java's -1 and librdkafka's 0 leave the system's
    if isinstance(field.default, int):
        return _size(name, key, value, field)
    if ours == "acks":
        return {"all": "all", "-1": "all", "1": 1, "0": 0}.get(text, text)
    if ours == "auto_offset_reset":
        return _RESETS.get(text, text)
    if ours == "group_protocol":
        return text.lower()
    if ours == "partition_assignment_strategy":
        names = [one.strip().rpartition(".")[2] for one in text.split(",")]
        return [_ASSIGNORS.get(one, one) for one in names]
    return text


def _size(name: str, key: str, value: Value, field: dataclasses.Field[Any]) -> int:
    number = int(_number(name, value))
    size = number * (1024 if key.endswith("_kbytes") else 1)
    if number >= _MAX_INT:
        largest = re.search(r"to ([\d,]+)", field.metadata["check"].__doc__ or "")
        return min(size, int(largest[1].replace(",", ""))) if largest else size
    return max(size, 1) if field.name == "batch_size" else size


def _seconds(name: str, key: str, value: Value, field: dataclasses.Field[Any]) -> float:
    number = _number(name, value)
    endless = "math.inf" in (field.metadata["check"].__doc__ or "")
    # The largest int, or long, of Java stands for no limit there, too.
    if endless and (number >= MAX_SECONDS * 1000 or number <= _SWITCHED_OFF.get(key, -math.inf)):
        return math.inf
    return number / 1000


def _number(name: str, value: Value) -> float:
    try:
        number = float(value)
        if isinstance(value, bool) or not math.isfinite(number):
            raise ValueError
    except (ValueError, OverflowError):
        raise InvalidConfig(f"{name}={value!r} can't be used: allowed is a number") from None
    return number


def _serializer(name: str, value: str, ours: str) -> Any:
    """A class of Kafka's own; others are for the caller to give."""
    table = _DESERIALIZERS if ours.endswith("deserializer") else _SERIALIZERS
    kind = "Deserializer" if ours.endswith("deserializer") else "Serializer"
    short = value.removeprefix(_KAFKAS_OWN).removesuffix(kind)
    if value.startswith(_KAFKAS_OWN) and short in table:
        return table[short]
    return NamedPlugIn(ours, f"{name}={value!r}")


def _fit_together(
    found: dict[str, Any], fields: Mapping[str, Any], levels: Mapping[str, int]
) -> None:
    """Do for the result what Java's clients do for settings that were not given."""
    if "idempotence" in fields and "idempotence" not in found:
        if found.get("acks", "all") != "all" or found.get("max_in_flight", 5) > 5:
            found["idempotence"] = False
    for first, bound in _GROWING:
        if first in found and bound not in found:
            found[bound] = max(found[first], fields[bound].default)
    level = levels.get(f"compression_{found.get('compression')}_level")
    level = levels.get("compression_level") if level is None else level
    if level is not None and found.get("compression", "none") in ("gzip", "lz4", "zstd"):
        found["compression_level"] = level
