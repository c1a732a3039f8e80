"""The options of the source: those of Spark's Kafka connector, checked on the driver. Sans-IO.

``source`` reads them when Spark makes it; planning and reading go by the result. Names are Spark's,
in any case of letters. What the connector would ignore or misread is an error here, by name.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from kclient.errors import InvalidConfig
from kclient.types import OffsetSpec, TopicPartition, check_topic_name

logger = logging.getLogger("kclient.spark")

KAFKA = "kafka."
PROPERTIES_FILE = "kclient.properties.file"
_KNOWN = {
    name.lower(): name
    for name in (
        *("subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets"),
        *("startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp"),
        *("endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "failOnDataLoss"),
        *("minPartitions", "maxRecordsPerPartition", "includeHeaders", "maxOffsetsPerTrigger"),
        *("minOffsetsPerTrigger", "maxTriggerDelay", "groupIdPrefix", PROPERTIES_FILE),
        *("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
        *("valueFormat", "valueSchema"),
    )
}
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
REFUSED = {
    "auto.offset.reset": "startingOffsets says where to start",
    "enable.auto.commit": "offsets are in the checkpoint; OffsetListener commits them to a group",
    "group.instance.id": "the source is no member of a group",
    "interceptor.classes": "there are no interceptors",
    "key.deserializer": "keys are binary columns: decode them by functions of data frames",
    "value.deserializer": "values are binary columns: decode them by functions of data frames",
}
"""Client settings that can't be given, and why."""
_SECRETS = re.compile(r"password|sasl\.|\.key$|keystore\.key|pem$|secret|token", re.IGNORECASE)
"""Client settings that are, or come with, secrets."""
_UNUSED = ("groupidprefix", "fetchoffset.numretries", "fetchoffset.retryintervalms")
_DURATION = re.compile(r"\s*(\d+)\s*(ms|s|m|min|h|d)?\s*", re.IGNORECASE)
_UNITS = {"ms": 0.001, "": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_POLL_TIMEOUT = 120.0
"""Seconds, Spark's network timeout: as the connector has it."""
_MAX_TRIGGER_DELAY = 900.0
_MAX_OFFSET = 2**63 - 1


@dataclass(frozen=True)
class Bound:
    """Where the reading of partitions begins or ends.

    Attributes:
        spec: For the partitions that ``offsets`` and ``times`` don't have; None: they must.
        offsets: By partition; -2 is the beginning, -1 the end.
        times: By partition, in milliseconds since the epoch.
        time: In milliseconds, for all partitions.
    """

    spec: OffsetSpec | None = None
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    times: Mapping[TopicPartition, int] = field(default_factory=dict)
    time: int | None = None

    @property
    def by_partition(self) -> Mapping[TopicPartition, int]:
        """Whichever of offsets and times was given by partition."""
        return self.offsets or self.times


EARLIEST = Bound(OffsetSpec.EARLIEST)
LATEST = Bound(OffsetSpec.LATEST)


@dataclass(frozen=True)
class SourceOptions:
    """What was asked for.

    Attributes:
        topics: Names that are subscribed to.
        pattern: A regular expression of whole names, instead.
        assigned: Partitions, instead.
        starting: Where reading begins; None for the default of batch or stream.
        ending: Where a batch ends.
        latest_without_match: A starting time behind all records is the end, in place of an error.
        fail_on_data_loss: Raise where records are gone before they were read.
        min_partitions: Least number of tasks.
        max_records_per_partition: Most offsets of one task.
        include_headers: Have the column ``headers``.
        max_offsets_per_trigger: Most offsets of one micro-batch.
        min_offsets_per_trigger: A micro-batch waits for so many offsets, or ``max_trigger_delay``.
        max_trigger_delay: Seconds.
        poll_timeout: Seconds without any progress, after which a task fails.
        value_schema: DDL of the columns that values have as JSON; None leaves them alone.
        properties: Client settings by Kafka's names.
        properties_file: Each node reads its client settings from there, before ``properties``.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()
    starting: Bound | None = None
    ending: Bound = LATEST
    latest_without_match: bool = False
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    include_headers: bool = False
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay: float = _MAX_TRIGGER_DELAY
    poll_timeout: float = _POLL_TIMEOUT
    value_schema: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    properties_file: str | None = None
    given: frozenset[str] = frozenset()

    def check_batch(self) -> None:
        """Refuse what only streams can have."""
        self._refuse_given(_STREAM_ONLY, "a batch")
        if self.starting is not None:
            _check_start_of_batch(self.starting)

    def check_stream(self) -> None:
        """Refuse what only batches can have."""
        self._refuse_given(_BATCH_ONLY, "a stream")

    def _refuse_given(self, names: tuple[str, ...], kind: str) -> None:
        found = [name for name in names if name.lower() in self.given]
        if found:
            raise InvalidConfig(f"option {found[0]} can't be used in {kind}")


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Read the options that Spark gives.

    Raises:
        InvalidConfig: One is unknown, can't be used, or doesn't go together with another.
    """
    options = {name.lower(): str(value) for name, value in given.items()}
    properties = {
        name[len(KAFKA) :]: value for name, value in options.items() if _is_client_setting(name)
    }
    _check_names(name for name in options if not _is_client_setting(name))
    _check_properties(properties)
    unused = [_KNOWN[name] for name in _UNUSED if name in options]
    if unused:
        logger.info("options without meaning here: %s", ", ".join(unused))
    reader = _Reader(options)
    topics, pattern, assigned = reader.subscription()
    if "bootstrap.servers" not in properties and PROPERTIES_FILE not in options:
        raise InvalidConfig(
            'option kafka.bootstrap.servers is missing, such as "localhost:9092"',
            hint=f"or {PROPERTIES_FILE}, a file with bootstrap.servers on every node",
        )
    least, most = reader.number("minOffsetsPerTrigger"), reader.number("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        _refuse("minOffsetsPerTrigger", str(least), f"at most maxOffsetsPerTrigger, {most}")
    return SourceOptions(
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        starting=reader.bound("starting"),
        ending=_checked_ending(reader.bound("ending") or LATEST),
        latest_without_match=reader.strategy(),
        fail_on_data_loss=reader.flag("failOnDataLoss", default=True),
        min_partitions=reader.number("minPartitions"),
        max_records_per_partition=reader.number("maxRecordsPerPartition"),
        include_headers=reader.flag("includeHeaders", default=False),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay=reader.duration("maxTriggerDelay", _MAX_TRIGGER_DELAY),
        poll_timeout=reader.milliseconds("kafkaConsumer.pollTimeoutMs", _POLL_TIMEOUT),
        value_schema=reader.value_schema(),
        properties=properties,
        properties_file=options.get(PROPERTIES_FILE),
        given=frozenset(options),
    )


def _is_client_setting(name: str) -> bool:
    return name.startswith(KAFKA)


def _refuse(name: str, value: str, allowed: str, hint: str | None = None) -> NoReturn:
    raise InvalidConfig(f"option {name}={value!r} can't be used: allowed is {allowed}", hint=hint)


def _check_names(names: Any) -> None:
    for name in names:
        if name in _KNOWN:
            continue
        near = difflib.get_close_matches(name, [*_KNOWN, "kafka.bootstrap.servers"], 1, 0.7)
        hint = f"did you mean {_KNOWN.get(near[0], near[0])}?" if near else None
        if name in ("topic", "topics"):
            hint = "did you mean subscribe?"
        elif name in ("path", "paths"):
            hint = "load() takes no path here"
        raise InvalidConfig(
            f"unknown option {name}",
            hint=hint or "settings of the client begin with kafka., such as kafka.client.id",
        )


def _check_properties(properties: Mapping[str, str]) -> None:
    for name, why in REFUSED.items():
        if name in properties:
            raise InvalidConfig(f"option {KAFKA}{name} can't be used: {why}")
    for name in properties:
        if _SECRETS.search(name):
            raise InvalidConfig(
                f"option {KAFKA}{name} can't be used: options are part of query plans, and travel "
                "to every node as they are",
                hint=f"put it into a file on each node, and name that by {PROPERTIES_FILE}",
            )


def _check_start_of_batch(starting: Bound) -> None:
    latest = [key for key, offset in starting.offsets.items() if offset == OffsetSpec.LATEST]
    if starting.spec is OffsetSpec.LATEST and not starting.by_partition and starting.time is None:
        _refuse("startingOffsets", "latest", 'in a batch "earliest" or JSON of offsets')
    if latest:
        _refuse("startingOffsets", f"-1 of {latest[0]}", "in a batch -2 (earliest) or an offset")


def _checked_ending(ending: Bound) -> Bound:
    earliest = [key for key, offset in ending.offsets.items() if offset == OffsetSpec.EARLIEST]
    if ending.spec is OffsetSpec.EARLIEST:
        _refuse("endingOffsets", "earliest", '"latest" or JSON of offsets')
    if earliest:
        _refuse("endingOffsets", f"-2 of {earliest[0]}", "-1 (latest) or an offset")
    return ending


class _Reader:
    """Reads single options; ``options`` are by lower-case name."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def text(self, name: str) -> str | None:
        """The option as it is."""
        return self._options.get(name.lower())

    def flag(self, name: str, *, default: bool) -> bool:
        """A boolean."""
        text = self.text(name)
        if text is None:
            return default
        if text.strip().lower() not in ("true", "false"):
            _refuse(name, text, "true or false")
        return text.strip().lower() == "true"

    def number(self, name: str) -> int | None:
        """A positive int."""
        text = self.text(name)
        if text is None:
            return None
        if not text.strip().isdecimal() or not 0 < int(text) <= _MAX_OFFSET:
            _refuse(name, text, "an integer from 1")
        return int(text)

    def duration(self, name: str, default: float) -> float:
        """A time with a unit, such as 15m; seconds."""
        text = self.text(name)
        if text is None:
            return default
        match = _DURATION.fullmatch(text)
        if match is None:
            _refuse(name, text, "a number with ms, s, m, h or d, such as 15m")
        return int(match[1]) * _UNITS[(match[2] or "").lower()]

    def milliseconds(self, name: str, default: float) -> float:
        """A number of milliseconds; seconds."""
        number = self.number(name)
        return default if number is None else number / 1000

    def strategy(self) -> bool:
        """Whether a starting time without a record is the end."""
        name = "startingOffsetsByTimestampStrategy"
        text = (self.text(name) or "error").strip().lower()
        if text not in ("error", "latest"):
            _refuse(name, text, "error or latest")
        return text == "latest"

    def value_schema(self) -> str | None:
        """The DDL of JSON values."""
        kind, ddl = self.text("valueFormat"), self.text("valueSchema")
        if kind is not None and kind.strip().lower() != "json":
            _refuse("valueFormat", kind, "json")
        if kind is not None and ddl is None:
            raise InvalidConfig(
                "option valueSchema is missing, which valueFormat=json needs",
                hint='such as "carrier string, delay int"',
            )
        if ddl is not None and not ddl.strip():
            _refuse("valueSchema", ddl, 'names and types, such as "carrier string, delay int"')
        return ddl

    def subscription(self) -> tuple[tuple[str, ...], str | None, tuple[TopicPartition, ...]]:
        """Topics, pattern and partitions, of which one is given."""
        names = [
            one
            for one in ("subscribe", "subscribePattern", "assign")
            if one.lower() in self._options
        ]
        if len(names) != 1:
            raise InvalidConfig(
                f"options {' and '.join(names)} were given, one of them is needed"
                if names
                else "one of the options subscribe, subscribePattern and assign is missing"
            )
        text = self._options[names[0].lower()]
        if names[0] == "subscribe":
            return self._topics(text), None, ()
        if names[0] == "subscribePattern":
            try:
                re.compile(text)
            except re.error as error:
                _refuse("subscribePattern", text, f"a regular expression: {error}")
            return (), text, ()
        return (), None, self._assigned(text)

    def _topics(self, text: str) -> tuple[str, ...]:
        topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not topics:
            _refuse("subscribe", text, "names of topics, with commas")
        for name in topics:
            check_topic_name(name, "option subscribe has a name that")
        return topics

    def _assigned(self, text: str) -> tuple[TopicPartition, ...]:
        allowed = 'JSON such as {"flights": [0, 1]}'
        given = _json("assign", text, allowed)
        found = []
        for topic, indexes in given.items():
            check_topic_name(topic, "option assign has a name that")
            if not isinstance(indexes, list) or not all(map(_is_index, indexes)) or not indexes:
                _refuse("assign", text, allowed)
            found += [TopicPartition(topic, index) for index in indexes]
        if not found:
            _refuse("assign", text, allowed)
        return tuple(dict.fromkeys(found))

    def bound(self, kind: str) -> Bound | None:
        """``kind`` is starting or ending. A time goes before times, and those before offsets."""
        time = self.text(f"{kind}Timestamp")
        if time is not None:
            if not time.strip().isdecimal() or int(time) > _MAX_OFFSET:
                _refuse(f"{kind}Timestamp", time, "milliseconds since the epoch")
            return Bound(time=int(time))
        name = f"{kind}OffsetsByTimestamp"
        times = self.text(name)
        if times is not None:
            return Bound(times=_by_partition(name, times, 0))
        name = f"{kind}Offsets"
        text = self.text(name)
        if text is None:
            return None
        if text.strip().lower() in ("earliest", "latest"):
            return Bound(OffsetSpec[text.strip().upper()])
        return Bound(offsets=_by_partition(name, text, -2))


def _json(name: str, text: str, allowed: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        _refuse(name, text, allowed)
    return value


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _by_partition(name: str, text: str, least: int) -> dict[TopicPartition, int]:
    what = "offsets" if least < 0 else "milliseconds"
    either = '"earliest", "latest" or ' if least < 0 else ""
    allowed = f'{either}JSON of {what} by partition, such as {{"flights": {{"0": 42}}}}'
    found = {}
    for topic, numbers in _json(name, text, allowed).items():
        check_topic_name(topic, f"option {name} has a name that")
        if not isinstance(numbers, dict):
            _refuse(name, text, allowed)
        for index, number in numbers.items():
            whole = isinstance(number, int) and not isinstance(number, bool)
            if not index.isdecimal() or not whole or not least <= number <= _MAX_OFFSET:
                _refuse(name, text, allowed)
            found[TopicPartition(topic, int(index))] = number
    if not found:
        _refuse(name, text, allowed)
    return found
