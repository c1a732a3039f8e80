"""How configurations are altered (KIP-339, KIP-226): what may be, and what may not.

The broker that is asked looks at nulls and repeated names, and at the configurations of brokers;
the controller applies the operations and looks at the whole that comes out. Rules only:
``handlers/alter_configs.py`` brings what is set now and keeps what comes out.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kclient.error_codes import ErrorCode
from kclient.testing import broker_configs, topic_configs
from kclient.testing.config_defs import ConfigDef
from kclient.testing.config_descriptions import (
    CLIENT_METRICS_DEFINITIONS,
    DYNAMIC_ONLY,
    GROUP_DEFINITIONS,
    BrokerLayers,
    Resource,
)
from kclient.testing.refused import Refused, bad_config, bad_request


class Operation(enum.IntEnum):
    """What becomes of a configuration."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """One entry of a request."""

    name: str
    operation: int
    value: str | None


LOG_LEVELS = ("DEBUG", "ERROR", "FATAL", "INFO", "TRACE", "WARN")
ROOT_LOGGER = "root"
_COMBINING = (Operation.APPEND, Operation.SUBTRACT)
_CLIENT_MATCHES = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
_SHORTEST_INTERVAL_MS, _LONGEST_INTERVAL_MS = 100, 3_600_000
_MIN_ISR = "min.insync.replicas"
_PER_LISTENER = re.compile(r"listener\.name\.[^.]+\.(.+)")
_SECURITY = re.compile(
    r"ssl\.(key\.password|keystore\.(type|location|password|key|certificate\.chain)"
    r"|truststore\.(type|location|password|certificates))"
)
_THREADS = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)
_CLEANER_BUFFER = "log.cleaner.dedupe.buffer.size"
_LEAST_CLEANER_BUFFER = 1 << 20


def check_changes(changes: Sequence[Change]) -> None:
    """Raise Refused where names are repeated, or a value is missing."""
    if len({one.name for one in changes}) != len(changes):
        raise bad_request("A configuration is named twice.")
    for name, operation, value in changes:
        if value is None and operation != Operation.DELETE:
            raise bad_request(f"{name} can't be null.")


def check_node(name: str, node_id: int) -> None:
    """Raise Refused unless ``name`` is the broker that is asked."""
    if not re.fullmatch(r"[+-]?\d{1,10}", name) or int(name) != node_id:
        raise bad_request(f"This is broker {node_id}, not {name!r}.")


# Operations


def altered(
    resource: Resource, changes: Sequence[Change], current: Mapping[str, str]
) -> dict[str, str]:
    """What is set after incremental changes, as the controller makes it."""
    known = {
        Resource.TOPIC: topic_configs.ALL_DEFINITIONS,
        Resource.BROKER: broker_configs.ALL_DEFINITIONS,
    }.get(resource, {})
    found = dict(current)
    for name, operation, value in changes:
        if operation == Operation.SET:
            found[name] = value or ""
        elif operation == Operation.DELETE:
            found.pop(name, None)
        elif operation in _COMBINING:
            one = _list_of(known, name)
            found[name] = _combined(found.get(name, one.default), value or "", operation)
        else:
            raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    return found


def _list_of(known: Mapping[str, ConfigDef], name: str) -> ConfigDef:
    one = known.get(name)
    if one is None or one.kind != "LIST":
        raise bad_config(f"{name} isn't a list.")
    return one


def _combined(old: str | None, value: str, operation: int) -> str:
    items = [item for item in (old or "").split(",") if item]
    for item in value.split(","):
        if operation == Operation.APPEND:
            if item not in items:
                items.append(item)
        elif item in items:
            items.remove(item)
    return ",".join(items)


# Brokers


def check_broker_operations(changes: Sequence[Change]) -> None:
    """Raise Refused for operations that the configurations of brokers don't have."""
    for name, operation, _ in changes:
        if operation not in tuple(Operation):
            raise bad_request(f"There is no operation {operation}.")
        if operation in _COMBINING:
            _list_of(broker_configs.ALL_DEFINITIONS, name)


def check_broker(new: Mapping[str, str], layers: BrokerLayers, *, for_all: bool) -> None:
    """Raise Refused unless a broker, or all of them, may have exactly these dynamic ones.

    Args:
        new: All that clients would have set then.
        layers: What is in force now.
        for_all: They are for all brokers.
    """
    values: dict[str, object] = {}
    for name, text in new.items():
        one = broker_configs.ALL_DEFINITIONS.get(name) or DYNAMIC_ONLY.get(name)
        mode = one.mode if one else "b" if _PER_LISTENER.fullmatch(name) else ""
        if mode == "r" or (mode == "b" and for_all) or _SECURITY.fullmatch(name):
            raise bad_request(f"{name} can't be changed here while brokers run.")
        if one is None:
            continue
        try:
            values[name] = one.parse(text)
        except Refused as refused:
            raise bad_request(refused.message or "") from refused
        if not _is_fit(name, values[name], layers):
            raise bad_request(f"{name} can't be {text!r}.")
    cleaners = values.get("log.cleaner.threads")
    if isinstance(cleaners, int):
        buffer = values.get(_CLEANER_BUFFER, layers.text(_CLEANER_BUFFER))
        if int(str(buffer)) // max(cleaners, 1) <= _LEAST_CLEANER_BUFFER:
            raise bad_request(f"{_CLEANER_BUFFER} must be above 1 MiB for each thread.")


def _is_fit(name: str, value: object, layers: BrokerLayers) -> bool:
    if name in _THREADS and isinstance(value, int):
        now = int(layers.text(name) or 0)
        return now // 2 <= value <= now * 2
    if name == "log.retention.ms":
        return value != 0
    least = {"log.roll.ms": 1, "log.roll.jitter.ms": 0}.get(name)
    return least is None or not isinstance(value, int) or value >= least


def check_min_isr(
    names: Iterable[str], current: Mapping[str, str], new: Mapping[str, str], *, for_all: bool
) -> None:
    """Raise Refused where eligible leader replicas (KIP-966) need ``min.insync.replicas``."""
    if for_all:
        if _MIN_ISR in current and _MIN_ISR not in new:
            raise bad_config(f"{_MIN_ISR} of the cluster can't be removed.")
    elif _MIN_ISR in names:
        raise bad_config(f"{_MIN_ISR} can't be set for one broker.")


# Groups and client metrics


def check_group(name: str, new: Mapping[str, str], layers: BrokerLayers) -> None:
    """Raise Refused unless a group may have exactly these."""
    if not name:
        raise bad_request("A group needs a name.")
    for key in new:
        if key not in GROUP_DEFINITIONS:
            raise bad_config(f"Groups have no configuration {key!r}.")
    values = {key: one.parse(new[key]) for key, one in GROUP_DEFINITIONS.items() if key in new}
    for key, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        least, most = (layers.text(_bound_name(key, bound)) for bound in ("min", "max"))
        if (least is not None and value < int(least)) or (most is not None and value > int(most)):
            raise bad_config(f"{key} is beyond what the brokers allow.")
    for protocol in ("consumer", "share", "streams"):
        names = (f"{protocol}.session.timeout.ms", f"{protocol}.heartbeat.interval.ms")
        session, heartbeat = (
            int(str(values.get(name, layers.text(f"group.{name}")))) for name in names
        )
        if session <= heartbeat:
            raise bad_config(f"{names[0]} must be above {names[1]}.")


def _bound_name(key: str, bound: str) -> str:
    """The broker's configuration that limits one of a group."""
    protocol, _, rest = key.partition(".")
    return f"group.{protocol}.{bound}.{rest.removeprefix('num.')}"


def check_client_metrics(name: str, new: Mapping[str, str]) -> None:
    """Raise Refused unless a subscription may have exactly these."""
    if not name:
        raise bad_request("A subscription of metrics needs a name.")
    for key, text in new.items():
        one = CLIENT_METRICS_DEFINITIONS.get(key)
        if one is None:
            raise bad_request(f"Subscriptions of metrics have no configuration {key!r}.")
        value = one.parse(text)
        if key == "interval.ms" and isinstance(value, int):
            if not _SHORTEST_INTERVAL_MS <= value <= _LONGEST_INTERVAL_MS:
                raise bad_request(f"interval.ms can't be {text!r}.")
        elif key == "match" and isinstance(value, list):
            for pattern in value:
                _check_match(pattern)


def _check_match(pattern: str) -> None:
    parts = pattern.split("=")
    try:
        if len(parts) == 2 and parts[0].strip() in _CLIENT_MATCHES:
            re.compile(parts[1].strip())
            return
    except re.error:
        pass
    raise bad_config(f"No clients can match {pattern!r}.")


# Loggers


def altered_levels(changes: Sequence[Change], levels: Mapping[str, str]) -> dict[str, str]:
    """The levels of a broker's loggers after incremental changes."""
    found = dict(levels)
    for logger, operation, level in changes:
        if operation not in tuple(Operation):
            raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR)
        if operation in _COMBINING:
            raise bad_request("The level of a logger isn't a list.")
        if logger not in levels:
            raise bad_config(f"There is no logger {logger!r}.")
        if operation == Operation.DELETE:
            if logger == ROOT_LOGGER:
                raise bad_request("The root logger needs a level.")
            found[logger] = levels[ROOT_LOGGER]
        elif level not in LOG_LEVELS:
            raise bad_config(f"{level!r} is none of {', '.join(LOG_LEVELS)}.")
        else:
            found[logger] = level
    return found
