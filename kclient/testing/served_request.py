"""``ServedRequest``: one entry of the log of requests, as tests see it.

``dispatch`` makes them, ``request_log`` keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kclient.error_codes import ErrorCode
from kclient.protocol.message import Struct
from kclient.testing.named_entries import named_entries
from kclient.testing.request_info import CLIENT

_CODES = frozenset(ErrorCode)
_SHOWN = 3
"""Names, or errors, in what a failing test prints."""


@dataclass(slots=True, eq=False, repr=False)
class ServedRequest:
    """One request that reached a broker, and what became of it; to be looked at only.

    Attributes:
        at: Monotonic seconds.
        broker: Node id.
        api_key: Kafka's number of the API.
        api: Kafka's name of it.
        version: Of the API.
        correlation_id: As sent.
        client_id: As sent.
        connection: A number for the connection, counted over the cluster's life.
        size_bytes: Of the frame, without its size field.
        request: The decoded message; the record bytes of a Produce are taken out once served.
        response: The answer, the record bytes of a Fetch taken out; bytes if a fault gave those;
            None while there is none, and for good where it was lost or none is wanted.
        answered_at: Monotonic seconds when the answer was handed to the network, or to the fault
            that keeps or spoils it from there on; None without an answer.
        replica_id: Node id of the follower that asked, -1 for a client.
    """

    at: float
    broker: int
    api_key: int
    api: str
    version: int
    correlation_id: int
    client_id: str | None
    connection: int
    size_bytes: int
    request: Any
    response: Any = None
    answered_at: float | None = None
    replica_id: int = CLIENT
    _number: int = 0
    _kept_bytes: int = 0

    def __repr__(self) -> str:
        whose = repr(self.client_id) if self.replica_id == CLIENT else f"follower {self.replica_id}"
        asked = f"{self.api} v{self.version} of {whose} to broker {self.broker}"
        return f"<{', '.join((asked, *self._about(), self._outcome()))}>"

    def _about(self) -> list[str]:
        entries = named_entries(self.request, lambda name, _: name)
        names = [
            topic if partition is None else f"{topic}-{partition}"
            for topic, partition in entries
            if topic
        ]
        if len(names) > _SHOWN:
            names[_SHOWN - 1 :] = [f"{names[_SHOWN - 1]} and {len(names) - _SHOWN} more"]
        return names

    def _outcome(self) -> str:
        if self.response is None:
            return "no answer"
        if isinstance(self.response, bytes):
            return f"answered {len(self.response)} bytes"
        errors = [one.name if isinstance(one, ErrorCode) else str(one) for one in self.errors]
        return " ".join(errors[:_SHOWN]) or "answered"

    @property
    def errors(self) -> list[int]:
        """The error codes anywhere in the answer, each once, in order; empty if all went well.

        Each an ``ErrorCode``, unless a fault made one up.
        """
        found: dict[int, None] = {}
        _collect_errors(self.response, found)
        return [ErrorCode(code) if code in _CODES else code for code in found]


def _collect_errors(value: object, found: dict[int, None]) -> None:
    if isinstance(value, list):
        for one in value:
            _collect_errors(one, found)
    elif isinstance(value, Struct):
        for name in value.__slots__:
            part = getattr(value, name)
            if name == "error_code":
                if part:
                    found[part] = None
            elif isinstance(part, (list, Struct)):
                _collect_errors(part, found)
