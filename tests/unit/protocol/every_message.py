"""All generated messages with all their versions, for tests that cover everything."""

from __future__ import annotations

from kclient.protocol import messages
from kclient.protocol.message import Message


def every_message() -> list[type[Message]]:
    """Return all generated messages, by name."""
    return [getattr(messages, name) for name in sorted(messages.MODULES)]


def versions(message: type[Message]) -> range:
    """Return all versions of a message that kclient speaks."""
    return range(message.MIN_VERSION, message.MAX_VERSION + 1)
