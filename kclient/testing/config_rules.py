"""How configurations are altered (KIP-339, KIP-226): what may be, and in which words it may not.

The broker that is asked looks at duplicates and nulls (and at the configurations of brokers, see
``broker_config_rules.py``); the controller applies the operations and looks at the whole that comes
out: ``config_change.py``. Rules only: ``handlers`` bring what is
set now and keep what comes out. Error texts are Kafka's.
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
    GROUP_DEFINITIONS,
    BrokerLayers,
    Resource,
)
from kclient.testing.refused import Refused


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
_CLIENT_MATCHES = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
_SHORTEST_INTERVAL_MS, _LONGEST_INTERVAL_MS = 100, 3_600_000


def check_duplicates(resources: Iterable[tuple[int, str]]) -> set[tuple[int, str]]:
    """Resources that are named more than once in a request, each of which is refused."""
    seen: set[tuple[int, str]] = set()
    twice: set[tuple[int, str]] = set()
    for resource in resources:
        (twice if resource in seen else seen).add(resource)
    return twice


def named_twice() -> Refused:
    """INVALID_REQUEST, with Kafka's text."""
    return Refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


def check_changes(changes: Sequence[Change]) -> None:
    """Raise Refused where names are repeated, or a value is missing."""
    if len({one.name for one in changes}) != len(changes):
        raise bad_request("Error due to duplicate config keys")
    nulls = [one.name for one in changes if one.value is None and one.operation != Operation.DELETE]
    if nulls:
        raise bad_request(f"Null value not supported for : {', '.join(nulls)}")


def check_node(name: str, node_id: int) -> None:
    """Raise Refused unless ``name`` is the broker that is asked."""
    number = _node_number(name)
    if number is None:
        raise bad_request(f"Node id must be an integer, but it is: {name}")
    if number != node_id:
        raise bad_request(f"Unexpected broker id, expected {node_id}, but received {name}")


def check_described_node(name: str, node_id: int, *, or_empty: bool) -> None:
    """As ``check_node``, in the words of DescribeConfigs."""
    number = _node_number(name)
    if number is None:
        raise bad_request(f"Broker id must be an integer, but it is: {name}")
    if number != node_id:
        words = f"{node_id} or empty string," if or_empty else f"{node_id}"
        raise bad_request(f"Unexpected broker id, expected {words} but received {name}")


def _node_number(name: str) -> int | None:
    return int(name) if re.fullmatch(r"[+-]?\d{1,10}", name) else None


def unknown_type(resource_type: int) -> Refused:
    """What an alteration of a resource is told that there isn't."""
    return bad_request(f"Unknown resource type {resource_type}")


# Operations


def altered(
    resource: Resource, changes: Sequence[Change], current: Mapping[str, str]
) -> dict[str, str]:
    """What is set after incremental changes, as the controller makes it."""
    found = dict(current)
    for name, operation, value in changes:
        if operation == Operation.SET:
            found[name] = value or ""
        elif operation == Operation.DELETE:
            found.pop(name, None)
        elif operation in (Operation.APPEND, Operation.SUBTRACT):
            one = _splittable(resource, name, Operation(operation))
            found[name] = _combined(found.get(name, one.default), value or "", operation)
        else:
            raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    return found


def _splittable(resource: Resource, name: str, operation: Operation) -> ConfigDef:
    known = {
        Resource.TOPIC: topic_configs.ALL_DEFINITIONS,
        Resource.BROKER: broker_configs.ALL_DEFINITIONS,
    }.get(resource, {})
    one = known.get(name)
    if one is None or one.kind != "LIST":
        raise invalid(f"Can't {operation.name} to key {name} because its type is not LIST.")
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


# Groups and client metrics


def check_group(name: str, new: Mapping[str, str], layers: BrokerLayers) -> None:
    """Raise Refused unless a group may have exactly these."""
    if not name:
        raise bad_request("Default group resources are not allowed.")
    for key in new:
        if key not in GROUP_DEFINITIONS:
            raise invalid(f"Unknown group config name: {key}")
    values = {key: one.parse(new[key]) for key, one in GROUP_DEFINITIONS.items() if key in new}
    for key, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        least, most = (layers.text(_bound_name(key, bound)) for bound in ("min", "max"))
        if least is not None and value < int(least):
            raise invalid(f"{key} must be greater than or equal to {_bound_name(key, 'min')}")
        if most is not None and value > int(most):
            raise invalid(f"{key} must be less than or equal to {_bound_name(key, 'max')}")
    _check_heartbeats(values, layers)


def _bound_name(key: str, bound: str) -> str:
    """The broker's configuration that limits one of a group."""
    protocol, _, rest = key.partition(".")
    return f"group.{protocol}.{bound}.{rest.removeprefix('num.')}"


def _check_heartbeats(values: Mapping[str, object], layers: BrokerLayers) -> None:
    for protocol in ("consumer", "share", "streams"):
        names = [f"{protocol}.session.timeout.ms", f"{protocol}.heartbeat.interval.ms"]
        session, heartbeat = (
            int(str(values.get(name, layers.text(f"group.{name}")))) for name in names
        )
        if session <= heartbeat:
            raise invalid(f"{names[0]} must be greater than {names[1]}")


def check_client_metrics(name: str, new: Mapping[str, str]) -> None:
    """Raise Refused unless a subscription may have exactly these."""
    if not name:
        raise bad_request("Subscription name can't be empty")
    for key, text in new.items():
        one = CLIENT_METRICS_DEFINITIONS.get(key)
        if one is None:
            raise bad_request(f"Unknown client metrics configuration: {key}")
        value = one.parse(text)
        if key == "interval.ms" and isinstance(value, int):
            if not _SHORTEST_INTERVAL_MS <= value <= _LONGEST_INTERVAL_MS:
                raise bad_request(
                    f"Invalid value {value} for interval.ms, interval must be between "
                    f"{_SHORTEST_INTERVAL_MS} and {_LONGEST_INTERVAL_MS} (1 hour)"
                )
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
    raise invalid(f"Illegal client matching pattern: {pattern}")


# Loggers


def altered_levels(
    name: str, node_id: int, changes: Sequence[Change], levels: Mapping[str, str]
) -> dict[str, str]:
    """The levels of a broker's loggers after incremental changes."""
    number = _node_number(name)
    if number is None:
        raise bad_request(f"Node id must be an integer, but it is: {name}")
    if number != node_id:
        raise bad_request(f"Unexpected node id. Expected {node_id}, but received {name}")
    found = dict(levels)
    for logger, operation, level in changes:
        if operation not in tuple(Operation):
            raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR)
        if operation in (Operation.APPEND, Operation.SUBTRACT):
            word = Operation(operation).name
            raise bad_request(f"{word} operation is not allowed for the BROKER_LOGGER resource")
        if logger not in levels:
            raise invalid(f"Logger {logger} does not exist!")
        if operation == Operation.DELETE:
            if logger == ROOT_LOGGER:
                raise bad_request("Removing the log level of the root logger is not allowed")
            found[logger] = levels[ROOT_LOGGER]
        elif level not in LOG_LEVELS:
            raise invalid(
                f"Cannot set the log level of {logger} to {level} as it is not a supported log "
                f"level. Valid log levels are {', '.join(LOG_LEVELS)}"
            )
        else:
            found[logger] = level
    return found


def bad_request(message: str) -> Refused:
    """INVALID_REQUEST, with Kafka's text."""
    return Refused(ErrorCode.INVALID_REQUEST, message)


def invalid(message: str) -> Refused:
    """INVALID_CONFIG, with Kafka's text."""
    return Refused(ErrorCode.INVALID_CONFIG, message)
