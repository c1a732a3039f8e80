"""Select the build of the producer's per-record and per-batch classes: that of the record codec.

The package imports ``Delivery``, ``RecordAppender`` and similar classes from here.
``KCLIENT_PURE=1`` selects the pure build, as in ``kclient.record``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.record import IMPLEMENTATION

if TYPE_CHECKING or IMPLEMENTATION != "cython":
    from kclient.producer.append import DUE as DUE
    from kclient.producer.append import END as END
    from kclient.producer.append import MemoryBudget as MemoryBudget
    from kclient.producer.append import RecordAppender as RecordAppender
    from kclient.producer.append import SendMethods as SendMethods
    from kclient.producer.append import TopicState as TopicState
    from kclient.producer.append import WhenFull as WhenFull
    from kclient.producer.append import YieldTimer as YieldTimer
    from kclient.producer.arrow_append import append_rows as append_rows
    from kclient.producer.batch import ProducerBatch as ProducerBatch
    from kclient.producer.delivery import BatchOutcome as BatchOutcome
    from kclient.producer.delivery import Delivery as Delivery
    from kclient.producer.delivery import SettledHost as SettledHost
    from kclient.producer.delivery import callback_iterations as callback_iterations
    from kclient.producer.partition_queue import PartitionQueue as PartitionQueue
    from kclient.producer.partition_queue import PartitionSequences as PartitionSequences
    from kclient.producer.sticky_partitioner import StickyPartitioner as StickyPartitioner
else:
    from kclient.producer._append_c import DUE as DUE
    from kclient.producer._append_c import END as END
    from kclient.producer._append_c import MemoryBudget as MemoryBudget
    from kclient.producer._append_c import RecordAppender as RecordAppender
    from kclient.producer._append_c import SendMethods as SendMethods
    from kclient.producer._append_c import TopicState as TopicState
    from kclient.producer._append_c import WhenFull as WhenFull
    from kclient.producer._append_c import YieldTimer as YieldTimer
    from kclient.producer._arrow_append_c import append_rows as append_rows
    from kclient.producer._batch_c import ProducerBatch as ProducerBatch
    from kclient.producer._delivery_c import BatchOutcome as BatchOutcome
    from kclient.producer._delivery_c import Delivery as Delivery
    from kclient.producer._delivery_c import SettledHost as SettledHost
    from kclient.producer._delivery_c import callback_iterations as callback_iterations
    from kclient.producer._partition_queue_c import PartitionQueue as PartitionQueue
    from kclient.producer._partition_queue_c import PartitionSequences as PartitionSequences
    from kclient.producer._sticky_partitioner_c import StickyPartitioner as StickyPartitioner
