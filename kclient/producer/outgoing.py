"""``Outgoing``: one record with everything that ``send_many`` can be told about it.

A value only; ``send_many`` also takes plain values and ``(key, value)`` pairs. Sans-IO.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kclient.types import Headers


class Outgoing(NamedTuple):
    """A record to send.

    Attributes:
        value: What ``value_serializer`` takes; bytes-like or None without one.
        key: What ``key_serializer`` takes; bytes-like or None without one.
        headers: (name, value) pairs.
        partition: Where to; None lets the partitioner choose.
        timestamp: Int milliseconds since the epoch; None means now.
    """

    value: Any
    key: Any = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None
