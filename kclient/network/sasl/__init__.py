"""SASL: one file per mechanism, each a machine without I/O.

``exchange.authenticate`` drives a mechanism through the requests of a connection: when it opens,
and before the broker ends its session (KIP-368). ``login`` makes the mechanisms of a client from
its credentials.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["Mechanism"]


class Mechanism(Protocol):
    """The client's side of one authentication.

    Attributes:
        name: As brokers call it.
        slow: A step computes for long or waits for others, so it is run in a thread.
    """

    name: str
    slow: bool

    def step(self, challenge: bytes | None, /) -> bytes | None:
        """Take what the broker said, and give what to say next.

        Args:
            challenge: None at the first step.

        Returns:
            None once the broker accepted us, and we the broker.

        Raises:
            AuthenticationFailed: What the broker said can't be trusted.
        """
        ...
