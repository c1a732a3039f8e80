"""The network room: one broker connection at a time, and the client that keeps them.

``client.NetworkClient`` is the door for the rooms above. The imports here are the whole surface,
but for the values of ``health``; what lies behind is described in the files themselves, the states
of a connection in ``connection.py``.
"""

from __future__ import annotations

from kclient.network.addresses import ConnectionKey, Lane, Node
from kclient.network.client import NetworkClient
from kclient.network.future import RequestFuture
from kclient.network.line import Room
from kclient.network.requests import RawResponse, RequestBuilder

__all__ = [
    "ConnectionKey",
    "Lane",
    "NetworkClient",
    "Node",
    "RawResponse",
    "RequestBuilder",
    "RequestFuture",
    "Room",
]
