"""How tests name an API: by its request class, Kafka's name or Kafka's number."""

from __future__ import annotations

from typing import TypeAlias

from kclient.errors import InvalidArgument
from kclient.protocol import registry
from kclient.protocol.message import Request

ApiName: TypeAlias = type[Request] | str | int
"""``ProduceRequest``, ``"Produce"`` or ``0``."""


def api_key_of(api: ApiName) -> int:
    """Kafka's number of an API.

    Raises:
        InvalidArgument: There is no such API.
    """
    if isinstance(api, type) and issubclass(api, Request):
        return api.API_KEY
    for key, name in registry.API_NAMES.items():
        if api in (key, name):
            return key
    raise InvalidArgument(
        f"api {api!r} is neither a request class, nor a name or number of Kafka's"
    )
