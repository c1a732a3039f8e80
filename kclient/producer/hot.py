"""Which build of the producer's per-record and per-batch classes runs: that of the record codec.

The room takes ``Delivery``, ``QuickWay`` and their like from here. ``KCLIENT_PURE=1`` picks the
pure one, as it does in ``kclient.record``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.record import IMPLEMENTATION

if TYPE_CHECKING or IMPLEMENTATION != "cython":
    from kclient.producer.batch import ProducerBatch
    from kclient.producer.delivery import BatchOutcome, Delivery
    from kclient.producer.doors import Doors
    from kclient.producer.partition_queue import PartitionQueue
    from kclient.producer.quick import (
        DUE,
        END,
        Account,
        QuickWay,
        StickyChoice,
        TopicWay,
        Turn,
    )
    from kclient.producer.row_filling import fill
    from kclient.producer.sequences import PartitionSequences
else:
    from kclient.producer._batch_c import ProducerBatch
    from kclient.producer._delivery_c import BatchOutcome, Delivery
    from kclient.producer._doors_c import Doors
    from kclient.producer._partition_queue_c import PartitionQueue
    from kclient.producer._quick_c import (
        DUE,
        END,
        Account,
        QuickWay,
        StickyChoice,
        TopicWay,
        Turn,
    )
    from kclient.producer._row_filling_c import fill
    from kclient.producer._sequences_c import PartitionSequences

__all__ = [
    "DUE",
    "END",
    "Account",
    "BatchOutcome",
    "Delivery",
    "Doors",
    "PartitionQueue",
    "PartitionSequences",
    "ProducerBatch",
    "QuickWay",
    "StickyChoice",
    "TopicWay",
    "Turn",
    "fill",
]
