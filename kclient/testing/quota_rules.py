"""Rules for client quotas (KIP-546): their entities, their values, and filters of requests.

Pure functions, for ``handlers/quotas.py``. An entity is an item for each of its types, in the order
of their names (``ip`` last); None in place of a name stands for all that have no quota of their
own. Codes and texts are Kafka's.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.alter_client_quotas import OpData
from kclient.protocol.messages.describe_client_quotas import ComponentData
from kclient.testing.responses import ApiError, bad_request

USER, CLIENT_ID, IP = "user", "client-id", "ip"

Entity: TypeAlias = tuple[tuple[str, str | None], ...]
Quotas: TypeAlias = Mapping[Entity, Mapping[str, float]]

_MAX_INT, _MAX_LONG = (1 << 31) - 1, (1 << 63) - 1
_OF_CLIENTS = {
    "producer_byte_rate": _MAX_LONG,
    "consumer_byte_rate": _MAX_LONG,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
"""The largest value of those that are whole numbers; None for the others."""
_OF_ADDRESSES = {"connection_creation_rate": _MAX_INT}
_NOT_WHOLE = 1e-6
_EXACT, _DEFAULT, _SPECIFIED = range(3)


def shown(entity: Entity) -> str:
    """An entity in Kafka's texts."""
    names = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{names}}})"


# Alteration


def altered(
    entity: Entity, ops: Iterable[OpData], current: Mapping[str, float]
) -> dict[str, float]:
    """The quotas of an entity after some were set or removed.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    known = _keys_for(entity)
    quotas = dict(current)
    for one in ops:
        if one.remove:
            quotas.pop(one.key, None)
        else:
            _check_value(known, one.key, one.value)
            quotas[one.key] = one.value
    return quotas


def _keys_for(entity: Entity) -> Mapping[str, int | None]:
    if not entity:
        raise bad_request("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise bad_request(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise bad_request(f"Empty {kind} not supported")
    names = dict(entity)
    if IP not in names:
        return _OF_CLIENTS
    if len(names) > 1:
        raise bad_request(
            "Invalid quota entity combination, IP entity should"
            "not be combined with User or ClientId"
        )
    _check_address(names[IP])
    return _OF_ADDRESSES


def _check_address(address: str | None) -> None:
    """Kafka resolves names, too; here ``localhost`` is the only one."""
    try:
        if address not in (None, "localhost"):
            ipaddress.ip_address(address)
    except ValueError:
        raise bad_request(f"{address} is not a valid IP or resolvable host.") from None


def _check_value(known: Mapping[str, int | None], key: str, value: float) -> None:
    if key not in known:
        raise bad_request(f"Invalid configuration key {key}")
    if value <= 0:
        raise bad_request(f"Quota {key} must be greater than 0")
    most = known[key]
    if most is None:
        return
    if value > most:
        kind = "an INT" if most == _MAX_INT else "a LONG"
        raise bad_request(f"Proposed value for {key} is too large for {kind}.")
    if value % 1 > _NOT_WHOLE:
        raise bad_request(f"{key} cannot be a fractional value.")


# Description


def matching(quotas: Quotas, components: Iterable[ComponentData], *, strict: bool) -> Quotas:
    """The quotas of the entities that a filter matches; a strict one excludes other types.

    Raises:
        ApiError: INVALID_REQUEST, or UNSUPPORTED_VERSION for an unknown type.
    """
    wanted: dict[str, ComponentData] = {}
    for one in components:
        _check_component(one, wanted)
        wanted[one.entity_type] = one
    if IP in wanted and len(wanted) > 1:
        raise bad_request(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )
    return {
        entity: values
        for entity, values in quotas.items()
        if not (strict and len(entity) != len(wanted)) and _matches(dict(entity), wanted)
    }


def _check_component(one: ComponentData, before: Mapping[str, ComponentData]) -> None:
    if not one.entity_type:
        raise bad_request("Invalid empty entity type.")
    if one.entity_type in before:
        raise bad_request(
            f"Entity type {one.entity_type} cannot appear more than once in the filter."
        )
    if one.entity_type not in (USER, CLIENT_ID, IP):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {one.entity_type}")
    if one.match_type not in (_EXACT, _DEFAULT, _SPECIFIED):
        raise bad_request(f"Unknown match type {one.match_type}")
    if one.match_type == _EXACT:
        if one.match is None:
            raise bad_request("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    elif one.match is not None:
        name = "DEFAULT" if one.match_type == _DEFAULT else "SPECIFIED"
        raise bad_request(
            f"Request specified MATCH_TYPE_{name}, but also specified a match string."
        )


def _matches(names: Mapping[str, str | None], wanted: Mapping[str, ComponentData]) -> bool:
    return all(
        kind in names and (one.match_type == _SPECIFIED or names[kind] == one.match)
        for kind, one in wanted.items()
    )
