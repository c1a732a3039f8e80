"""The fault wall: make brokers err, stall, lose and lie on purpose.

Tests use ``cluster.faults``. ``fault.py`` says what one fault is, ``connection.py`` asks around
each request, and handlers ask per entry (``Call.error_for``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, Unpack

from kclient.error_codes import ErrorCode
from kclient.protocol.message import Response
from kclient.testing.api_names import ApiName
from kclient.testing.call import Call
from kclient.testing.fault import Action, Fault, Where

Rewrite: TypeAlias = Callable[[Any, Any], "Response | bytes | None"]
"""Gets request and response; returns what is sent: a message, or the raw bytes of a frame after
its size field. None sends the response that it was given, which it may have changed."""


class Faults:
    """All faults of a cluster.

    Every method takes the API (``"Produce"``, ``ProduceRequest`` or ``0``), ``times`` (how many
    requests; None for all) and, as keywords, which requests: ``broker``, ``client_id``, ``topic``,
    ``partition``. ``after=True`` acts when the request was carried out, so that a record is in the
    log though the answer says otherwise or never comes. Each returns the ``Fault``, whose ``hits``
    tell how often it acted. Those added first act first.

    Example::

        cluster.faults.error("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, topic="flights")
        cluster.faults.close("Produce", after=True)         # written, but the answer is lost
        slow = cluster.faults.hold("Fetch", broker=2)
        ...
        slow.release()
    """

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def __iter__(self) -> Iterator[Fault]:
        return iter(tuple(self._faults))

    def __bool__(self) -> bool:
        return bool(self._faults)

    def error(
        self,
        api: ApiName,
        code: ErrorCode,
        *,
        times: int | None = 1,
        after: bool = False,
        **where: Unpack[Where],
    ) -> Fault:
        """Answer with ``code``: each entry concerned, or the whole where the API has no entries.

        A Fetch without ``topic`` gets it for the response as a whole, as session errors are.
        """
        fault = Fault(Action.ERROR, api, times, after, where)
        fault.code = ErrorCode(code)
        return self._add(fault)

    def close(
        self,
        api: ApiName | None,
        *,
        times: int | None = 1,
        after: bool = False,
        **where: Unpack[Where],
    ) -> Fault:
        """Close the connection instead of an answer."""
        return self._add(Fault(Action.CLOSE, api, times, after, where))

    def drop(
        self,
        api: ApiName | None,
        *,
        times: int | None = 1,
        after: bool = False,
        **where: Unpack[Where],
    ) -> Fault:
        """Never answer, nor any later request on that connection, as a broker that hangs."""
        return self._add(Fault(Action.DROP, api, times, after, where))

    def delay(
        self,
        api: ApiName | None,
        seconds: float,
        *,
        times: int | None = 1,
        after: bool = False,
        **where: Unpack[Where],
    ) -> Fault:
        """Carry the request out, or with ``after`` answer it, ``seconds`` later."""
        fault = Fault(Action.WAIT, api, times, after, where)
        fault.seconds = seconds
        return self._add(fault)

    def hold(
        self,
        api: ApiName | None,
        *,
        times: int | None = 1,
        after: bool = False,
        **where: Unpack[Where],
    ) -> Fault:
        """Hold requests, or with ``after`` their answers, until ``release()`` of the fault."""
        return self._add(Fault(Action.WAIT, api, times, after, where))

    def throttle(
        self, api: ApiName, seconds: float, *, times: int | None = 1, **where: Unpack[Where]
    ) -> Fault:
        """Answer with a throttle time; the connection is not read for as long (KIP-219)."""

        def slow(_: Call, response: Any) -> None:
            response.throttle_time_ms = round(seconds * 1000)

        fault = Fault(Action.CHANGE, api, times, True, where)
        fault.change = slow
        return self._add(fault)

    def rewrite(
        self, api: ApiName, function: Rewrite, *, times: int | None = 1, **where: Unpack[Where]
    ) -> Fault:
        """Let ``function(request, response)`` change or replace the answer."""
        fault = Fault(Action.CHANGE, api, times, True, where)
        fault.change = lambda call, response: function(call.request, response)
        return self._add(fault)

    def corrupt_fetch(
        self, topic: str, partition: int = 0, *, times: int | None = 1, broker: int | None = None
    ) -> Fault:
        """Flip the last byte of the records that fetches of a partition return, if any."""

        def parts(call: Call, response: Any) -> list[Any]:
            return [
                part
                for one in response.responses
                if call.topic_name(one.topic, one.topic_id) == topic
                for part in one.partitions
                if part.partition_index == partition and part.records
            ]

        def flip(call: Call, response: Response) -> None:
            for part in parts(call, response):
                part.records = bytearray(part.records)
                part.records[-1] ^= 0xFF

        where = Where() if broker is None else Where(broker=broker)
        fault = Fault(Action.CHANGE, "Fetch", times, True, where)
        fault.applies = lambda call, response: bool(parts(call, response))
        fault.change = flip
        return self._add(fault)

    def remove(self, fault: Fault) -> None:
        """Take one fault back and release what it holds."""
        if fault in self._faults:
            self._faults.remove(fault)
        fault.release()

    def clear(self) -> None:
        """Take all faults back and release what they hold."""
        for fault in self:
            self.remove(fault)

    def _add(self, fault: Fault) -> Fault:
        self._faults = [one for one in self._faults if one.active or one.held]
        self._faults.append(fault)
        return fault

    # What brokers ask

    def error_for(
        self, call: Call, topic: str | None, partition: int | None, *, after: bool
    ) -> ErrorCode | None:
        """The code that an entry of a request is to be answered with, if any."""
        for fault in self._faults:
            if (
                fault.action is Action.ERROR
                and fault.after == after
                and (fault in call.used_faults or fault.concerns(call))
                and fault.concerns_entry(topic, partition)
            ):
                if fault not in call.used_faults:
                    call.used_faults.append(fault)
                    fault.use()
                return fault.code
        return None

    def next_gate(self, call: Call, *, after: bool) -> Fault | None:
        """The next fault that closes, drops or holds this request, or its answer."""
        for fault in self._faults:
            if (
                fault.action in (Action.CLOSE, Action.DROP, Action.WAIT)
                and fault.after == after
                and fault not in call.used_faults
                and fault.concerns(call)
                and fault.concerns_any(call)
            ):
                call.used_faults.append(fault)
                fault.use()
                return fault
        return None

    def change(self, call: Call, response: Response) -> Response | bytes:
        """The answer as the faults want it."""
        for fault in tuple(self._faults):
            if (
                fault.change is not None
                and fault.concerns(call)
                and fault.concerns_any(call)
                and fault.applies(call, response)
            ):
                fault.use()
                changed = fault.change(call, response)
                if isinstance(changed, bytes):
                    return changed
                response = response if changed is None else changed
        return response
