"""The producer room: from a user's ``send`` to acknowledged batches on the brokers.

The public names, and nothing else. ``producer`` is the door; ARCHITECTURE.md tells how a record
travels through the other files.
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
    """What only those need who look at a producer's health."""
    if name == "ProducerHealth":
        from kclient.producer.health import ProducerHealth

        return ProducerHealth
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
