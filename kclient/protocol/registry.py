"""Finds message classes by API key; loads a module only when one of its classes is asked for."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import NamedTuple, cast

from kclient.errors import ProtocolError
from kclient.protocol.message import Request
from kclient.protocol.messages import APIS, UNSPOKEN


class Api(NamedTuple):
    """What is known of an API without loading its messages.

    Attributes:
        key: Kafka's number.
        name: Kafka's name.
        module: Below ``kclient.protocol.messages``.
        min_version: Lowest version that this client speaks.
        max_version: Highest one.
        first_flexible: First version with tagged fields, also in the headers; None without.
    """

    key: int
    name: str
    module: str
    min_version: int
    max_version: int
    first_flexible: int | None


ALL: list[Api] = [Api._make(row) for row in APIS]
"""Every API that this client speaks, by key."""

BY_KEY: dict[int, Api] = {api.key: api for api in ALL}

API_NAMES: dict[int, str] = {**UNSPOKEN, **{api.key: api.name for api in ALL}}
"""Names of API keys, those included that brokers may list and this client doesn't speak."""


def api(api_key: int) -> Api:
    """The API of a key; raises ProtocolError if this client doesn't speak it."""
    found = BY_KEY.get(api_key)
    if found is None:
        name = API_NAMES.get(api_key)
        raise ProtocolError(f"API {api_key}{f' ({name})' if name else ''} is not spoken here")
    return found


def request_class(api_key: int) -> type[Request]:
    """The request class of an API; raises ProtocolError if this client doesn't speak it."""
    found = api(api_key)
    module = importlib.import_module(f"kclient.protocol.messages.{found.module}")
    return cast(type[Request], getattr(module, f"{found.name}Request"))


@lru_cache(maxsize=1024)
def is_flexible(api_key: int, version: int) -> bool:
    """Whether headers and body of this version have tagged fields."""
    first = api(api_key).first_flexible
    return first is not None and version >= first
