"""Which build of the producer's per-record classes runs: that of the record codec.

The room takes ``Delivery``, ``QuickWay`` and their like from here. ``KCLIENT_PURE=1`` picks the
pure one, as it does in ``kclient.record``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.record import IMPLEMENTATION

if TYPE_CHECKING or IMPLEMENTATION != "cython":
    from kclient.producer.delivery import BatchOutcome, Delivery
    from kclient.producer.quick import (
        DUE,
        END,
        RECORD_OVERHEAD,
        Account,
        Filling,
        QuickWay,
        StickyChoice,
        TopicWay,
        Turn,
    )
else:
    from kclient.producer._delivery_c import BatchOutcome, Delivery
    from kclient.producer._quick_c import (
        DUE,
        END,
        RECORD_OVERHEAD,
        Account,
        Filling,
        QuickWay,
        StickyChoice,
        TopicWay,
        Turn,
    )

__all__ = [
    "DUE",
    "END",
    "RECORD_OVERHEAD",
    "Account",
    "BatchOutcome",
    "Delivery",
    "Filling",
    "QuickWay",
    "StickyChoice",
    "TopicWay",
    "Turn",
]
