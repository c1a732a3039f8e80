"""Changes to answers that ``faults.Faults`` has ready made: a throttle time, damaged records.

Each gives the functions that ``Fault.change`` and ``Fault.applies`` are; they touch the answer that
leaves, and never a log.
"""

from __future__ import annotations

from typing import Any

from kclient.protocol.message import Response
from kclient.testing.call import Call


class Throttle:
    """Tell a throttle time."""

    def __init__(self, milliseconds: int) -> None:
        self._milliseconds = milliseconds

    def change(self, call: Call, response: Any) -> None:
        """Set it."""
        response.throttle_time_ms = self._milliseconds


class Corruption:
    """Flip the last byte of the records of a partition."""

    def __init__(self, topic: str, partition: int) -> None:
        self._topic = topic
        self._partition = partition

    def _parts(self, call: Call, response: Any) -> list[Any]:
        return [
            part
            for one in response.responses
            if call.topic_name(one.topic, one.topic_id) == self._topic
            for part in one.partitions
            if part.partition_index == self._partition and part.records
        ]

    def applies(self, call: Call, response: Response) -> bool:
        """There are records of it."""
        return bool(self._parts(call, response))

    def change(self, call: Call, response: Response) -> None:
        """Flip it, in a copy."""
        for part in self._parts(call, response):
            part.records = bytearray(part.records)
            part.records[-1] ^= 0xFF
