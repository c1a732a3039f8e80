"""The seat of SASL: what a connection asks of its authenticator.

``connection.py`` makes one ``Authenticator`` per connection through a factory, and drives it in its
state AUTHENTICATING: each step is one request (SaslHandshake, then SaslAuthenticate as often as
the mechanism needs) and its response. The connection does the framing, the versions and the
deadline. A mechanism is a file of its own beside this one. Sans-IO: it must not wait; what is slow,
such as PBKDF2 or fetching a token, is done before the dial.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kclient.protocol.message import Request, Response

__all__ = ["Authenticator"]


class Authenticator(Protocol):
    """A step machine that authenticates one connection once."""

    def step(self, response: Response | None, /) -> Request | None:
        """Take the response to the last step's request; give the next request.

        Args:
            response: The decoded response; None at the first step.

        Returns:
            The next request, or None when both sides are satisfied: the connection is usable.

        Raises:
            KafkaError: The peer refused, or what it said can't be trusted. The connection closes
                and its waiters get this error.
        """
        ...
