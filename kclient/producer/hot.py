"""Which build of the producer's per-record and per-batch classes runs: that of the record codec.

The room takes ``Delivery``, ``QuickWay`` and their like from here. ``KCLIENT_PURE=1`` picks the
pure one, as it does in ``kclient.record``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.record import IMPLEMENTATION

if TYPE_CHECKING or IMPLEMENTATION != "cython":
    from kclient.producer.batch import ProducerBatch as ProducerBatch
    from kclient.producer.delivery import BatchOutcome as BatchOutcome
    from kclient.producer.delivery import Delivery as Delivery
    from kclient.producer.delivery import LoopOnly as LoopOnly
    from kclient.producer.delivery import told_within as told_within
    from kclient.producer.partition_queue import PartitionQueue as PartitionQueue
    from kclient.producer.partition_queue import PartitionSequences as PartitionSequences
    from kclient.producer.quick import DUE as DUE
    from kclient.producer.quick import END as END
    from kclient.producer.quick import Account as Account
    from kclient.producer.quick import Doors as Doors
    from kclient.producer.quick import NoRoom as NoRoom
    from kclient.producer.quick import QuickWay as QuickWay
    from kclient.producer.quick import StickyChoice as StickyChoice
    from kclient.producer.quick import TopicWay as TopicWay
    from kclient.producer.quick import Turn as Turn
    from kclient.producer.row_filling import fill as fill
else:
    from kclient.producer._batch_c import ProducerBatch as ProducerBatch
    from kclient.producer._delivery_c import BatchOutcome as BatchOutcome
    from kclient.producer._delivery_c import Delivery as Delivery
    from kclient.producer._delivery_c import LoopOnly as LoopOnly
    from kclient.producer._delivery_c import told_within as told_within
    from kclient.producer._partition_queue_c import PartitionQueue as PartitionQueue
    from kclient.producer._partition_queue_c import PartitionSequences as PartitionSequences
    from kclient.producer._quick_c import DUE as DUE
    from kclient.producer._quick_c import END as END
    from kclient.producer._quick_c import Account as Account
    from kclient.producer._quick_c import Doors as Doors
    from kclient.producer._quick_c import NoRoom as NoRoom
    from kclient.producer._quick_c import QuickWay as QuickWay
    from kclient.producer._quick_c import StickyChoice as StickyChoice
    from kclient.producer._quick_c import TopicWay as TopicWay
    from kclient.producer._quick_c import Turn as Turn
    from kclient.producer._row_filling_c import fill as fill
