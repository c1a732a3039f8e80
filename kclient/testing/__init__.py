"""A Kafka cluster inside the process, to test against without Docker. Not for production.

``Cluster`` is the entry point; ``cluster.faults`` breaks it on purpose, ``cluster.requests`` logs
the requests to its brokers, ``cluster.events`` what happened inside. ``LoopProbe`` measures how
long callbacks block the loop. It shares the wire format and the record codec with the clients, and
nothing else.
"""

from __future__ import annotations

from kclient.clock import Clock
from kclient.error_codes import ErrorCode
from kclient.testing.arguments import TopicDefaults
from kclient.testing.broker import Broker
from kclient.testing.clock import Deadlock, Livelock, OutOfTime, Stuck, VirtualLoop, run_virtually
from kclient.testing.cluster import Cluster
from kclient.testing.cluster_security import ClusterSecurity
from kclient.testing.controller import Tally
from kclient.testing.event_log import EventLog
from kclient.testing.events import (
    BrokerDown,
    BrokerFenced,
    BrokerUp,
    ClusterEvent,
    ControllerElected,
    ControllerLost,
    CoordinatorElected,
    IsrExpanded,
    IsrShrunk,
    LeaderElected,
    LeaderLost,
    LogTruncated,
    TransactionChanged,
)
from kclient.testing.fault import Action, Fault
from kclient.testing.faults import Faults
from kclient.testing.log import PartitionLog
from kclient.testing.log_cleaner import CleanResult
from kclient.testing.loop_probe import LoopProbe
from kclient.testing.memory_link import Link
from kclient.testing.memory_net import MemoryNet, NetStats
from kclient.testing.request_info import RequestInfo
from kclient.testing.request_log import RequestLog, ServedRequest
from kclient.testing.stored_batch import StoredBatch
from kclient.testing.threaded import ThreadedCluster

__all__ = [
    "Action",
    "Broker",
    "BrokerDown",
    "BrokerFenced",
    "BrokerUp",
    "CleanResult",
    "Clock",
    "Cluster",
    "ClusterEvent",
    "ClusterSecurity",
    "ControllerElected",
    "ControllerLost",
    "CoordinatorElected",
    "Deadlock",
    "ErrorCode",
    "EventLog",
    "Fault",
    "Faults",
    "IsrExpanded",
    "IsrShrunk",
    "LeaderElected",
    "LeaderLost",
    "Link",
    "Livelock",
    "LogTruncated",
    "LoopProbe",
    "MemoryNet",
    "NetStats",
    "OutOfTime",
    "PartitionLog",
    "RequestInfo",
    "RequestLog",
    "ServedRequest",
    "StoredBatch",
    "Stuck",
    "Tally",
    "ThreadedCluster",
    "TopicDefaults",
    "TransactionChanged",
    "VirtualLoop",
    "run_virtually",
]
