"""Where authentication sits: between version negotiation and a usable connection.

``authenticator.Authenticator`` is the seat; a mechanism is a file of its own beside it.
"""

from __future__ import annotations

from kclient.network.sasl.authenticator import Authenticator

__all__ = ["Authenticator"]
