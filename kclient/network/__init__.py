"""The network room: one broker connection at a time, and the client that keeps them.

``client.NetworkClient`` is the door for the rooms above. The imports here are the whole surface;
what lies behind is described in the files themselves, the states of a connection in
``connection.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.network.addresses import ConnectionKey, Lane, Node
from kclient.network.client import NetworkClient
from kclient.network.future import RequestFuture
from kclient.network.requests import RawResponse, RequestBuilder

if TYPE_CHECKING:
    from kclient.network.health import ConnectionHealth as ConnectionHealth
    from kclient.network.health import NodeHealth as NodeHealth

__all__ = [
    "ConnectionHealth",
    "ConnectionKey",
    "Lane",
    "NetworkClient",
    "Node",
    "NodeHealth",
    "RawResponse",
    "RequestBuilder",
    "RequestFuture",
]


def __getattr__(name: str) -> object:
    """What only those need who look at the client's health."""
    if name in ("ConnectionHealth", "NodeHealth"):
        from kclient.network import health

        return getattr(health, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
