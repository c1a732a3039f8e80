"""The producer room: from a user's ``send`` to acknowledged batches on the brokers.

The public names, and nothing else. ``producer`` is the door; ARCHITECTURE.md tells how a record
travels through the other files.
"""

from __future__ import annotations

from kclient.producer.hot import Delivery
from kclient.producer.outgoing import Outgoing
from kclient.producer.producer import Producer

__all__ = ["Delivery", "Outgoing", "Producer"]
