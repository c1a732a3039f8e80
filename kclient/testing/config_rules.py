"""Rules for altering configurations (KIP-339, KIP-226).

The broker that gets the request checks nulls and repeated names, and the configurations of brokers;
the controller applies the operations and checks the result as a whole. Pure functions:
``handlers/configs.py`` passes in the current configurations and stores the result.
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
    Resource,
)
from kclient.testing.responses import ApiError, bad_config, bad_request


class Operation(enum.IntEnum):
    """Operations on a configuration."""

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
_MIN_ISR = "min.insync.replicas"


def check_changes(changes: Sequence[Change]) -> None:
    """Raise ApiError if names are repeated, or a value is missing."""
    if len({one.name for one in changes}) != len(changes):
        raise bad_request("A configuration is named twice.")
    for name, operation, value in changes:
        if value is None and operation != Operation.DELETE:
            raise bad_request(f"{name} can't be null.")


def check_node(name: str, node_id: int) -> None:
    """Raise ApiError unless ``name`` is the id of the broker that got the request."""
    if not re.fullmatch(r"[+-]?\d{1,10}", name) or int(name) != node_id:
        raise bad_request(f"This is broker {node_id}, not {name!r}.")


# Operations


def altered(
    resource: Resource, changes: Sequence[Change], current: Mapping[str, str]
) -> dict[str, str]:
    """The configurations after incremental changes, as the controller computes them."""
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
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
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
    """Raise ApiError for operations that are unknown or don't apply to a broker configuration."""
    for name, operation, _ in changes:
        if operation not in tuple(Operation):
            raise bad_request(f"There is no operation {operation}.")
        if operation in _COMBINING:
            _list_of(broker_configs.ALL_DEFINITIONS, name)


def check_broker(new: Mapping[str, str], *, for_all: bool) -> None:
    """Raise ApiError unless these are a valid set of dynamic configurations of a broker, or all.

    Consistency between them is checked only for defaults of topics: other combinations have no
    effect here.
    """
    for name in new:
        one = _known(name)
        if one is not None and (one.mode == "r" or (one.mode == "b" and for_all)):
            raise bad_request(f"{name} can't be changed here while brokers run.")
    try:
        for name, text in new.items():
            one = _known(name)
            if one is not None:
                one.parse(text)
        topic_configs.TopicConfig({}, topic_configs.topic_defaults(new))
    except ApiError as refused:
        raise bad_request(refused.message or "") from refused


def _known(name: str) -> ConfigDef | None:
    return broker_configs.ALL_DEFINITIONS.get(name) or DYNAMIC_ONLY.get(name)


def check_min_isr(
    names: Iterable[str], current: Mapping[str, str], new: Mapping[str, str], *, for_all: bool
) -> None:
    """Raise ApiError if eligible leader replicas (KIP-966) need ``min.insync.replicas``."""
    if for_all:
        if _MIN_ISR in current and _MIN_ISR not in new:
            raise bad_config(f"{_MIN_ISR} of the cluster can't be removed.")
    elif _MIN_ISR in names:
        raise bad_config(f"{_MIN_ISR} can't be set for one broker.")


# Groups and client metrics


def check_group(name: str, new: Mapping[str, str]) -> None:
    """Raise ApiError unless these are a valid set of configurations of a group."""
    if not name:
        raise bad_request("A group needs a name.")
    for key, text in new.items():
        if key not in GROUP_DEFINITIONS:
            raise bad_config(f"Groups have no configuration {key!r}.")
        GROUP_DEFINITIONS[key].parse(text)


def check_client_metrics(name: str, new: Mapping[str, str]) -> None:
    """Raise ApiError unless these are a valid set of configurations of a subscription."""
    if not name:
        raise bad_request("A subscription of metrics needs a name.")
    for key, text in new.items():
        one = CLIENT_METRICS_DEFINITIONS.get(key)
        if one is None:
            raise bad_request(f"Subscriptions of metrics have no configuration {key!r}.")
        one.parse(text)


# Loggers


def altered_levels(changes: Sequence[Change], levels: Mapping[str, str]) -> dict[str, str]:
    """The levels of a broker's loggers after incremental changes."""
    found = dict(levels)
    for logger, operation, level in changes:
        if operation not in tuple(Operation):
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
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
