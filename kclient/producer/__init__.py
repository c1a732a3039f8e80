"""The producer package: from the caller's ``send`` to acknowledged batches on the brokers.

The public names, and nothing else. ``producer`` is the entry point; ARCHITECTURE.md describes how a
record travels through the other modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.producer._compiled import Delivery
from kclient.producer.outgoing import Outgoing
from kclient.producer.producer import Producer

if TYPE_CHECKING:
    from kclient.producer.health import ProducerHealth as ProducerHealth

__all__ = ["Delivery", "Outgoing", "Producer", "ProducerHealth"]


def __getattr__(name: str) -> object:
    """Import ``ProducerHealth`` on first use: only code that reads a producer's health needs it."""
    if name == "ProducerHealth":
        from kclient.producer.health import ProducerHealth

        return ProducerHealth
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
