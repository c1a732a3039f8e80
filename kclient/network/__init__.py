"""The network package: one broker connection at a time, and the client that keeps them.

``client.NetworkClient`` is the entry point for the packages above. The imports here are all of it,
but for the values of ``health``; what lies behind is described in the files themselves, the states
of a connection in ``connection.py``.
"""

from __future__ import annotations

from kclient.network.client import NetworkClient
from kclient.network.frames import RawResponse
from kclient.network.node_connection import Capacity
from kclient.network.nodes import ConnectionKey, Lane, Node
from kclient.network.requests import RequestBuilder, RequestFuture

__all__ = [
    "Capacity",
    "ConnectionKey",
    "Lane",
    "NetworkClient",
    "Node",
    "RawResponse",
    "RequestBuilder",
    "RequestFuture",
]
