"""How tests name an API: by its request class, Kafka's name or Kafka's number."""

from __future__ import annotations

from typing import TypeAlias

from kclient.errors import InvalidArgument
from kclient.protocol import registry
from kclient.protocol.message import Request
from kclient.testing.served_versions import VERSIONS
from kclient.testing.suggestions import meant

ApiName: TypeAlias = type[Request] | str | int
"""``ProduceRequest``, ``"Produce"`` or ``0``."""


def api_key_of(api: ApiName) -> int:
    """Kafka's number of an API.

    Raises:
        InvalidArgument: There is no such API.
    """
    if isinstance(api, type) and issubclass(api, Request):
        return api.API_KEY
    if isinstance(api, (str, int)) and not isinstance(api, bool):
        for key, name in registry.API_NAMES.items():
            if api in (key, name):
                return key
    raise InvalidArgument(
        f"api {api!r} is neither a request class, nor a name or number of Kafka's"
        + meant(api, registry.API_NAMES.values())
    )


def served_key_of(api: ApiName) -> int:
    """Kafka's number of an API that the embedded cluster serves.

    Raises:
        InvalidArgument: There is no such API, or no broker here ever gets to see a request of it.
    """
    key = api_key_of(api)
    if key not in VERSIONS:
        raise InvalidArgument(f"{registry.API_NAMES[key]} isn't served by the embedded cluster")
    return key
