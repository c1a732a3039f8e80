"""Which dynamic configurations a broker may have (KIP-226), in Kafka's words where it may not.

Looked at by the broker that is asked to alter them, before the controller is. Rules only, as in
``config_rules.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from kclient.testing import broker_configs
from kclient.testing.config_descriptions import DYNAMIC_ONLY, BrokerLayers
from kclient.testing.config_rules import Change, Operation, bad_request, invalid
from kclient.testing.groups.java_hash import hash_map_order
from kclient.testing.refused import Refused

_MIN_ISR = "min.insync.replicas"
_LISTENER_PREFIX = re.compile(r"listener\.name\.[^.]+\.(.+)")
_SECURITY = re.compile(
    r"ssl\.(key\.password|keystore\.(type|location|password|key|certificate\.chain)"
    r"|truststore\.(type|location|password|certificates))"
)
_THREADS = (
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "background.threads",
)
_CLEANER_BUFFER = "log.cleaner.dedupe.buffer.size"
_LEAST_CLEANER_BUFFER = 1 << 20
_LEAST = {
    "log.roll.ms": (1, "greater than or equal to 1"),
    "log.roll.jitter.ms": (0, "greater than or equal to 0"),
}


def check_broker_operations(changes: Sequence[Change]) -> None:
    """Raise Refused for operations that the configurations of brokers don't have."""
    for name, operation, _ in changes:
        if operation not in tuple(Operation):
            raise bad_request(f"Unknown operations type {operation}")
        if operation in (Operation.APPEND, Operation.SUBTRACT):
            one = broker_configs.ALL_DEFINITIONS.get(name)
            if one is None:
                raise invalid(f"Unknown config name: {name}")
            if one.kind != "LIST":
                word = Operation(operation).name.lower()
                raise invalid(f"Config value {word} is not allowed for config key: {name}")


def check_broker(new: Mapping[str, str], layers: BrokerLayers, *, for_all: bool) -> None:
    """Raise Refused unless a broker, or all of them, may have exactly these dynamic ones.

    Args:
        new: All that clients would have set then.
        layers: What is in force now.
        for_all: They are for all brokers.
    """
    known = broker_configs.ALL_DEFINITIONS
    _refuse_any(
        "Cannot update these configs dynamically",
        (name for name in new if name in known and known[name].mode == "r"),
    )
    _refuse_any(
        "These security configs can be dynamically updated only per-listener using the listener "
        "prefix",
        (name for name in new if _SECURITY.fullmatch(name)),
    )
    values: dict[str, object] = {}
    for name, text in new.items():
        one = known.get(name) or DYNAMIC_ONLY.get(name)
        if one is not None:
            values[name] = _as_request(one.parse, text)
    if for_all:
        _refuse_any(
            "Cannot update these configs at default cluster level, broker id must be specified",
            (name for name in new if _is_per_broker(name)),
        )
    _check_requirements(values)
    _check_threads(values, layers)


def _is_per_broker(name: str) -> bool:
    one = broker_configs.ALL_DEFINITIONS.get(name)
    return _LISTENER_PREFIX.fullmatch(name) is not None or (one is not None and one.mode == "b")


def _refuse_any(why: str, names: Iterable[str]) -> None:
    found = hash_map_order(names)
    if found:
        raise bad_request(f"{why}: [{', '.join(found)}]")


def _as_request(parse: Callable[[str], object], text: str) -> object:
    try:
        return parse(text)
    except Refused as refused:
        raise bad_request(refused.message or "") from refused


def _check_requirements(values: Mapping[str, object]) -> None:
    if values.get("log.retention.ms") == 0:
        raise bad_request(
            "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or "
            "equal to 1"
        )
    for name, (least, words) in _LEAST.items():
        value = values.get(name)
        if isinstance(value, int) and value < least:
            raise bad_request(f"requirement failed: {name} must be {words}")


def _check_threads(values: Mapping[str, object], layers: BrokerLayers) -> None:
    _check_cleaners(values, layers)
    for name in _THREADS:
        new, old = values.get(name), int(layers.text(name) or 0)
        if not isinstance(new, int) or new == old:
            continue
        if new > old * 2:
            why = f"value should not be greater than double the current value {old}"
        elif new < old // 2:
            why = f"value should be at least half the current value {old}"
        else:
            continue
        raise _unfit(f"Dynamic thread count update validation failed for {name}={new}, {why}")


def _check_cleaners(values: Mapping[str, object], layers: BrokerLayers) -> None:
    new, old = values.get("log.cleaner.threads"), int(layers.text("log.cleaner.threads") or 0)
    if not isinstance(new, int):
        return
    buffer = values.get(_CLEANER_BUFFER, layers.text(_CLEANER_BUFFER))
    if int(str(buffer)) // new <= _LEAST_CLEANER_BUFFER:
        raise bad_request(
            f"requirement failed: {_CLEANER_BUFFER} must be at least 1MB per cleaner thread."
        )
    if new < old // 2:
        raise _unfit(
            f"Log cleaner threads cannot be reduced to less than half the current value {old}"
        )
    if new > old * 2:
        raise _unfit(
            f"Log cleaner threads cannot be increased to more than double the current value {old}"
        )


def _unfit(why: str) -> Refused:
    return bad_request(
        f"Invalid value org.apache.kafka.common.config.ConfigException: {why} for configuration "
        "Invalid dynamic configuration"
    )


def check_min_isr(
    names: Iterable[str], current: Mapping[str, str], new: Mapping[str, str], *, for_all: bool
) -> None:
    """Raise Refused where eligible leader replicas (KIP-966) need ``min.insync.replicas``."""
    if for_all:
        if _MIN_ISR in current and _MIN_ISR not in new:
            raise invalid(
                "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
            )
    elif _MIN_ISR in names:
        raise invalid("Broker-level min.insync.replicas cannot be altered while ELR is enabled.")
