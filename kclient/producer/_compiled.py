"""Which build of the producer's per-record and per-batch classes runs: that of the record codec.

The room takes ``Delivery``, ``QuickWay`` and their like from here. ``KCLIENT_PURE=1`` picks the
pure one, as it does in ``kclient.record``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.record import IMPLEMENTATION

if TYPE_CHECKING or IMPLEMENTATION != "cython":
    from kclient.producer.append import DUE as DUE
    from kclient.producer.append import END as END
    from kclient.producer.append import Account as Account
    from kclient.producer.append import Doors as Doors
    from kclient.producer.append import NoRoom as NoRoom
    from kclient.producer.append import QuickWay as QuickWay
    from kclient.producer.append import StickyChoice as StickyChoice
    from kclient.producer.append import TopicWay as TopicWay
    from kclient.producer.append import Turn as Turn
    from kclient.producer.arrow_append import fill as fill
    from kclient.producer.batch import ProducerBatch as ProducerBatch
    from kclient.producer.delivery import BatchOutcome as BatchOutcome
    from kclient.producer.delivery import Delivery as Delivery
    from kclient.producer.delivery import LoopOnly as LoopOnly
    from kclient.producer.delivery import told_within as told_within
    from kclient.producer.partition_queue import PartitionQueue as PartitionQueue
    from kclient.producer.partition_queue import PartitionSequences as PartitionSequences
else:
    from kclient.producer._append_c import DUE as DUE
    from kclient.producer._append_c import END as END
    from kclient.producer._append_c import Account as Account
    from kclient.producer._append_c import Doors as Doors
    from kclient.producer._append_c import NoRoom as NoRoom
    from kclient.producer._append_c import QuickWay as QuickWay
    from kclient.producer._append_c import StickyChoice as StickyChoice
    from kclient.producer._append_c import TopicWay as TopicWay
    from kclient.producer._append_c import Turn as Turn
    from kclient.producer._arrow_append_c import fill as fill
    from kclient.producer._batch_c import ProducerBatch as ProducerBatch
    from kclient.producer._delivery_c import BatchOutcome as BatchOutcome
    from kclient.producer._delivery_c import Delivery as Delivery
    from kclient.producer._delivery_c import LoopOnly as LoopOnly
    from kclient.producer._delivery_c import told_within as told_within
    from kclient.producer._partition_queue_c import PartitionQueue as PartitionQueue
    from kclient.producer._partition_queue_c import PartitionSequences as PartitionSequences
