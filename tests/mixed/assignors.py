"""Which clients have which assignor, and what each calls it.

``scenario`` makes a group for each. librdkafka has no ``sticky``; aiokafka knows eager rebalances
only. Java's members are its console consumer and, by ``python -m tests.mixed``, its verifiable
consumer, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_JAVA = "org.apache.kafka.clients.consumer."
JAVA_NAMES: Mapping[str, str] = {
    "range": _JAVA + "RangeAssignor",
    "roundrobin": _JAVA + "RoundRobinAssignor",
    "sticky": _JAVA + "StickyAssignor",
    "cooperative-sticky": _JAVA + "CooperativeStickyAssignor",
}
FOREIGN: Mapping[str, Sequence[str]] = {
    "range": ("librdkafka", "java_console", "aiokafka", "kafka_python"),
    "roundrobin": ("librdkafka", "java_console", "aiokafka", "kafka_python"),
    "sticky": ("java_console", "aiokafka", "kafka_python"),
    "cooperative-sticky": ("librdkafka", "java_console", "kafka_python"),
}
"""Assignor -> the clients beside kclient that have it."""
