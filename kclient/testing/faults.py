"""The fault wall: make brokers err, stall, lose and lie on purpose.

Tests use ``cluster.faults``. ``fault.py`` says what one fault is; brokers ask ``fault_list.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, Unpack

from kclient.error_codes import ErrorCode
from kclient.errors import InvalidArgument
from kclient.protocol.message import Response
from kclient.testing.answer_faults import AnswerFaults
from kclient.testing.api_names import ApiName
from kclient.testing.call import Call
from kclient.testing.fault import Action, Fault, Hook, Spoil, Stage, Unframed, Where
from kclient.testing.fault_list import FaultList

Rewrite: TypeAlias = Callable[[Any, Any], "Response | bytes | None"]
"""Gets request and response; returns what is sent: a message, or the raw bytes of a frame after
its size field. None sends the response that it was given, which it may have changed."""

_STAGES = {
    "before": Stage.BEFORE,
    "after_append": Stage.AFTER_APPEND,
    "after_reply": Stage.AFTER_REPLY,
}


class Faults(FaultList):
    """All faults of a cluster.

    Every method takes the API (``"Produce"``, ``ProduceRequest`` or ``0``; None for all where that
    makes sense), ``times`` (how many requests; None for all) and, as keywords, which requests:
    ``broker``, ``client_id``, ``topic``, ``partition``, ``version``, ``connection``, ``replica``,
    ``when``. Requests of followers are left alone unless ``replica`` names one, or ``"any"``.
    ``after=True`` acts when the request was carried out, so that a record is in the log though the
    answer says otherwise or never comes. Each returns the ``Fault``, whose ``hits`` tell how often
    it acted; ``with`` takes it back at the end of a block. Those added first act first.

    ========================= =======================================================
    what a test wants         how
    ========================= =======================================================
    an error code             ``error("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER)``
    a request never arrived   ``lose_requests("Produce")``
    an answer is lost         ``lose_answers("Produce")``: written, and nobody knows
    a broker hangs            ``hang(broker=2)``
    a broker is out of reach  ``unavailable(broker=2)``
    a broker is slow          ``delay(None, 0.5, times=None, broker=2)``
    a request waits           ``hold("Fetch")``, then ``release()``
    a quota is exceeded       ``throttle("Produce", 1.5)``
    answers out of order      ``reorder("Produce", count=2)``, or ``repeat("Produce")``
    an answer is cut          ``cut_answer("Fetch", byte=100)``
    a request is cut          ``cut_request("Produce", byte=100)``
    bytes come slowly         ``trickle("Fetch", bytes_per_second=1000)``
    any other bytes           ``answer_bytes("Metadata", b"...")``
    another answer            ``rewrite("Metadata", function)``
    damaged records           ``corrupt_fetch("flights")``
    code at some point        ``on("Produce", function, at="after_append")``
    some by chance            ``error(..., when=lambda _: rng.random() < 0.1)``
    ========================= =======================================================

    What a function of the test raises (of ``on``, ``rewrite``, ``when``) closes the connection
    that it was called for, or means no for ``when``, and reaches the test: ``check`` and the end
    of the cluster raise it.

    Example::

        cluster.faults.error("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, topic="flights")
        cluster.faults.close("Produce", after=True)         # written, but the answer is lost
        slow = cluster.faults.hold("Fetch", broker=2)
        await slow.wait_hits()
        ...
        slow.release()
        with cluster.faults.hang(broker=3):
            ...
    """

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

    def lose_requests(
        self, api: ApiName | None, times: int | None = 1, **where: Unpack[Where]
    ) -> Fault:
        """Close the connection on requests, which are not carried out.

        Example::

            cluster.faults.lose_requests("Produce", 2)
        """
        return self.close(api, times=times, **where)

    def lose_answers(
        self, api: ApiName | None, times: int | None = 1, **where: Unpack[Where]
    ) -> Fault:
        """Carry requests out, and close the connection in place of the answer.

        Example::

            cluster.faults.lose_answers("Produce")
            await producer.send("flights", b"UA 1545")   # an idempotent one sends it again
            assert len(cluster.records("flights")) == 1
        """
        return self.close(api, times=times, after=True, **where)

    def hang(self, **where: Unpack[Where]) -> Fault:
        """Answer nothing, and carry nothing out, until it is removed.

        Connections are taken, and those that asked something meanwhile stay deaf for good.

        Example::

            with cluster.faults.hang(broker=2):
                ...
            cluster.faults.hang(broker=2, client_id="east")   # those two are partitioned
        """
        return self.drop(None, times=None, **where)

    def unavailable(self, **where: Unpack[Where]) -> Fault:
        """Close every connection on its first request, until it is removed.

        Example::

            with cluster.faults.unavailable(broker=2):
                ...
        """
        return self.close(None, times=None, **where)

    def on(
        self,
        api: ApiName | None,
        function: Hook,
        *,
        at: Literal["before", "after_append", "after_reply"] = "before",
        times: int | None = None,
        **where: Unpack[Where],
    ) -> Fault:
        """Call a function of the test for each request of a kind.

        It gets a ``RequestInfo`` and may return an answer, which is sent in place of the broker's:
        a response, or the raw bytes of a frame after its size field; None changes nothing. It may
        be a coroutine function: the request, and what comes behind it on its connection, wait for
        it. The coroutine goes on if the connection is lost meanwhile, as when it crashes the
        broker; it is cancelled when the fault is removed or the cluster closed.

        Args:
            api: Of which requests; None for all.
            function: What is called. What it raises closes the connection; ``check`` and
                ``Cluster.close`` raise it.
            at: ``"before"`` the request is carried out: with an answer it won't be.
                ``"after_append"``, once the broker that was asked has carried it out: a Produce is
                in the leader's log, but with acks=all not yet in those of the followers. The
                response is there, as it will be if the followers come; there is none yet where
                the request waits for something else (records, members of a group). An answer of
                the function ends such waits.
                ``"after_reply"``, once the answer was handed to the network, or there is none, as
                with acks=0; what the function returns is ignored.
            times: For how many requests; None for all.
            where: Which requests.

        Raises:
            InvalidArgument: ``at`` is none of these.

        Example::

            async def crash(request: RequestInfo) -> None:
                await cluster.crash(request.broker)

            cluster.faults.on("Produce", crash, at="after_append", times=1)
        """
        stage = _STAGES.get(at)
        if stage is None:
            raise InvalidArgument(f"at={at!r} must be one of {', '.join(_STAGES)}")
        return self._add_hook(api, function, stage, times, where)

    def _add_hook(
        self, api: ApiName | None, function: Hook, stage: Stage, times: int | None, where: Where
    ) -> Fault:
        fault = Fault(Action.HOOK, api, times, stage is not Stage.BEFORE, where)
        fault.stage = stage
        fault.hook = function
        return self._add(fault)

    def answer_bytes(
        self,
        api: ApiName | None,
        data: bytes,
        *,
        framed: bool = True,
        times: int | None = 1,
        after: bool = False,
        **where: Unpack[Where],
    ) -> Fault:
        """Answer with these bytes, the request not carried out unless ``after``.

        Args:
            api: Of which requests; None for all.
            data: The bytes: correlation id, header and message as the test wants them.
            framed: A size field that is right is sent in front; False sends ``data`` alone.
            times: How often; None for always.
            after: The request is carried out before.
            where: Which requests.

        Example::

            cluster.faults.answer_bytes("Metadata", b"\\x7f\\xff\\xff\\xff", framed=False)
        """
        answer = bytes(data) if framed else Unframed(data)
        stage = Stage.AFTER if after else Stage.BEFORE
        return self._add_hook(api, lambda _: answer, stage, times, where)

    def reorder(
        self,
        api: ApiName | None,
        *,
        count: int = 2,
        times: int | None = 1,
        **where: Unpack[Where],
    ) -> Fault:
        """Send the next ``count`` answers on a connection in reverse order.

        Each is kept until all are there, so a client that sends no second request before the first
        is answered waits until ``release()``, which sends what is kept. ``times`` counts such
        groups.
        """
        if count < 2:
            raise InvalidArgument(f"count must be at least 2, not {count}")

        def spoil(answers: AnswerFaults, frame: bytearray) -> None:
            answers.reorder(fault, frame, count)

        fault = self._add_spoiling(api, spoil, times, where)
        return fault

    def repeat(
        self, api: ApiName | None, *, times: int | None = 1, **where: Unpack[Where]
    ) -> Fault:
        """Send an answer twice."""
        return self._add_spoiling(api, lambda answers, frame: answers.repeat(frame), times, where)

    def cut_answer(
        self,
        api: ApiName | None,
        *,
        byte: int,
        reset: bool = False,
        times: int | None = 1,
        **where: Unpack[Where],
    ) -> Fault:
        """Send the first ``byte`` bytes of an answer, its size field included, and close.

        Args:
            api: Of which requests; None for all.
            byte: How many bytes; the connection ends behind the answer if that has fewer.
            reset: End with a reset, which may take those bytes along.
            times: How often; None for always.
            where: Which requests.
        """
        _check_byte(byte)
        return self._add_spoiling(
            api, lambda answers, frame: answers.cut(frame, byte, reset), times, where
        )

    def cut_request(
        self,
        api: ApiName | None,
        *,
        byte: int,
        reset: bool = False,
        times: int | None = 1,
        **where: Unpack[Where],
    ) -> Fault:
        """Close the connection when ``byte`` bytes of a request, size field included, are there.

        It is not carried out, and not in the log of requests. With an API, ``client_id`` or
        ``version`` the header has to be there, too, as it tells them. A request that has fewer
        bytes is cut at its end.

        Raises:
            InvalidArgument: ``topic``, ``replica`` or ``when`` is given: they need the whole.
        """
        _check_byte(byte)
        if not where.keys() <= {"broker", "client_id", "version", "connection"}:
            raise InvalidArgument(
                f"cut_request takes broker, client_id, version and connection, not {sorted(where)}"
            )
        fault = Fault(Action.CUT, api, times, False, where)
        fault.byte, fault.reset = byte, reset
        return self._add(fault)

    def trickle(
        self,
        api: ApiName | None,
        bytes_per_second: float,
        *,
        times: int | None = 1,
        **where: Unpack[Where],
    ) -> Fault:
        """Send an answer slowly, at so many bytes a second; what comes behind it waits."""
        if not bytes_per_second > 0:
            raise InvalidArgument(f"bytes_per_second must be above 0, not {bytes_per_second}")
        return self._add_spoiling(
            api, lambda answers, frame: answers.trickle(frame, bytes_per_second), times, where
        )

    def _add_spoiling(
        self, api: ApiName | None, spoil: Spoil, times: int | None, where: Where
    ) -> Fault:
        fault = Fault(Action.SPOIL, api, times, True, where)
        fault.spoil = spoil
        return self._add(fault)

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


def _check_byte(byte: int) -> None:
    if byte < 0:
        raise InvalidArgument(f"byte must be at least 0, not {byte}")
