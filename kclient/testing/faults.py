"""Fault injection: make brokers fail, stall, and lose or falsify responses on purpose.

Tests use ``cluster.faults``. ``fault.py`` has the class of one fault, ``fault_arguments.py`` the
checks of arguments; brokers query ``fault_list.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack
from weakref import WeakKeyDictionary

from kclient.error_codes import ErrorCode
from kclient.errors import InvalidArgument
from kclient.protocol.message import Response
from kclient.testing import fault_arguments as check
from kclient.testing.api_versions import ApiName, served_key_of
from kclient.testing.arguments import whole
from kclient.testing.fault import Action, Fault, Hook, Stage
from kclient.testing.fault_arguments import Where, named
from kclient.testing.fault_list import FaultList
from kclient.testing.request_context import RequestContext
from kclient.testing.request_info import RequestInfo, info_of
from kclient.testing.responses import PendingResult, Unframed

if TYPE_CHECKING:
    from kclient.testing.connection import Channel

Rewrite: TypeAlias = Callable[[Any, Any], "Response | bytes | None"]
"""Gets request and response; returns the response to send: a message, or the raw bytes of a frame
after its size field. None sends the response that it got, which it may have changed."""
Api: TypeAlias = ApiName | None
"""The API of the requests; None for all."""
Times: TypeAlias = int | None
"""How many requests; None for all."""

_FETCH = 1
_DESCRIBE_LOG_DIRS = 35
_WRITING = frozenset(
    (0, 8, 9, 11, 12, 13, 14, 16, 19, 20, 21, 33, 37, 38, 39, 40, 42, 43, 44, 47, 49, 51)
)
"""APIs whose handlers check for error faults twice: before they act and after."""
_OF_A_LOGIN = (17, 18, 36)
"""SaslHandshake, ApiVersions and SaslAuthenticate."""
_MOST_THROTTLE = ((1 << 31) - 1) / 1000
"""Longest throttle time, in seconds."""
_STEP_SECONDS = 0.05
"""Shortest time between two writes of a trickle."""
_STAGES = {
    "before": Stage.BEFORE,
    "after_append": Stage.AFTER_APPEND,
    "after_reply": Stage.AFTER_REPLY,
}


class Faults(FaultList):
    """The faults of a cluster.

    Every method takes the API (``"Produce"``, ``ProduceRequest`` or ``0``; None for all where that
    makes sense), ``times`` (how many requests; None for all) and, as keywords, which requests:
    ``broker``, ``client_id``, ``topic``, ``partition``, ``version``, ``connection``, ``replica``,
    ``when``. Requests of followers are left alone unless ``replica`` names one, or ``"any"``.
    ``after=True`` acts after the request was executed, so that a record is in the log although the
    response has an error or never comes. Each returns the ``Fault``, whose ``hits`` counts how
    often it acted (``unused`` has those that never did); ``with`` removes it at the end of a block,
    and requests that it holds then continue at once. Faults act in the order in which they were
    added. Invalid arguments raise InvalidArgument: an unknown keyword, an API that isn't served, a
    broker that doesn't exist.

    ========================= =======================================================
    what a test wants         how
    ========================= =======================================================
    an error code             ``error("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER)``
    a request never arrived   ``lose_requests("Produce")``
    a response is lost        ``lose_answers("Produce")``: written, but not acknowledged
    a broker hangs            ``hang(broker=2)``
    a broker is unreachable   ``unavailable(broker=2)``
    a broker is slow          ``delay(None, 0.5, times=None, broker=2)``
    a request waits           ``hold("Fetch")``, then ``release()``
    a quota is exceeded       ``throttle("Produce", 1.5)``
    a login is refused        ``error("SaslAuthenticate", ErrorCode.SASL_AUTHENTICATION_FAILED)``
    a session expires         ``expire_session("Produce")``
    a certificate is renewed  ``rotate_certificate()``
    responses out of order    ``reorder("Produce", count=2)``, or ``repeat("Produce")``
    a response is cut         ``cut_answer("Fetch", byte=100)``
    a request is cut          ``cut_request("Produce", byte=100)``
    bytes come slowly         ``trickle("Fetch", bytes_per_second=1000)``
    any other bytes           ``answer_bytes("Metadata", b"...")``
    another response          ``rewrite("Metadata", function)``
    damaged records           ``corrupt_fetch("flights")``
    code at some point        ``on("Produce", function, at="after_append")``
    some by chance            ``error(..., when=lambda _: rng.random() < 0.1)``
    ========================= =======================================================

    An exception of a test's function (of ``on``, ``rewrite``, ``when``) closes the connection
    that it was called for, or counts as False for ``when``, and reaches the test: ``check`` and the
    end of the cluster raise it.

    Example::

        cluster.faults.error("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, topic="flights")
        cluster.faults.close("Produce", after=True)         # written, but the response is lost
        slow = cluster.faults.hold("Fetch", broker=2)
        await slow.wait_hits()
        ...
        slow.release()
        with cluster.faults.hang(broker=3):
            ...
    """

    @named
    def error(
        self,
        api: ApiName,
        code: ErrorCode,
        *,
        times: Times = 1,
        after: bool = False,
        **where: Unpack[Where],
    ) -> Fault:
        """Respond with ``code``: in each entry concerned, or for the whole if the API has none.

        A Fetch without ``topic`` gets it for the response as a whole, as session errors are.
        ``after`` makes no difference for APIs that only read.
        """
        key = served_key_of(check.api("error", api))
        if key == _DESCRIBE_LOG_DIRS and "topic" in where:
            raise InvalidArgument("topic: an answer to DescribeLogDirs has no errors of topics")
        stage = Stage.LATE_ENTRY if after and key in _WRITING else Stage.ENTRY
        code = check.error_code(code)
        return self.add(Fault(Action.ERROR, stage, key, times, where, code.name, code=code))

    @named
    def close(
        self, api: Api, *, times: Times = 1, after: bool = False, **where: Unpack[Where]
    ) -> Fault:
        """Close the connection instead of a response."""
        return self.add(Fault(Action.CLOSE, _late(after), api, times, where))

    @named
    def drop(
        self, api: Api, *, times: Times = 1, after: bool = False, **where: Unpack[Where]
    ) -> Fault:
        """Send no response to it or to any later request on that connection, like a hung broker."""
        return self.add(Fault(Action.DROP, _late(after), api, times, where))

    @named
    def delay(
        self,
        api: Api,
        seconds: float,
        *,
        times: Times = 1,
        after: bool = False,
        **where: Unpack[Where],
    ) -> Fault:
        """Execute the request, or with ``after`` respond to it, ``seconds`` later."""
        words = "of seconds from 0 (hold() is for ever)"
        check.number("seconds", seconds, words, lambda one: one >= 0)
        fault = Fault(Action.WAIT, _late(after), api, times, where, f"{seconds:g} s")
        fault.seconds = seconds
        return self.add(fault)

    @named
    def hold(
        self, api: Api, *, times: Times = 1, after: bool = False, **where: Unpack[Where]
    ) -> Fault:
        """Hold requests, or with ``after`` their responses, until ``release()`` of the fault."""
        return self.add(Fault(Action.WAIT, _late(after), api, times, where))

    @named
    def lose_requests(self, api: Api, times: Times = 1, **where: Unpack[Where]) -> Fault:
        """Close the connection on requests, so that they are not executed.

        Example::

            cluster.faults.lose_requests("Produce", 2)
        """
        return self.close(api, times=times, **where)

    @named
    def lose_answers(self, api: Api, times: Times = 1, **where: Unpack[Where]) -> Fault:
        """Execute requests, and close the connection instead of a response.

        Example::

            cluster.faults.lose_answers("Produce")
            await producer.send("flights", b"UA 1545")   # an idempotent producer sends it again
            assert len(cluster.records("flights")) == 1
        """
        return self.close(api, times=times, after=True, **where)

    @named
    def hang(self, **where: Unpack[Where]) -> Fault:
        """Execute no requests, and send no responses, until it is removed.

        Connections are accepted; one that got a request meanwhile never serves any again, and its
        requests are lost. A broker that pauses and continues where it was, as one whose machine
        was suspended, is ``hold(None, times=None, broker=2)``.

        Example::

            with cluster.faults.hang(broker=2):
                ...
            cluster.faults.hang(broker=2, client_id="east")   # those two are partitioned
        """
        return self.drop(None, times=None, **where)

    @named
    def unavailable(self, **where: Unpack[Where]) -> Fault:
        """Close every connection on its first request, until it is removed.

        Example::

            with cluster.faults.unavailable(broker=2):
                ...
        """
        return self.close(None, times=None, **where)

    @named
    def expire_session(self, api: Api = None, *, times: Times = 1, **where: Unpack[Where]) -> Fault:
        """Close the connection on a request, as its login is over (KIP-368).

        Brokers do so after ``session_lifetime``, or the end of a token, unless the client has
        authenticated again. Connections without a login, and requests that belong to one, are left
        alone.
        """
        given = where.get("when")
        if given is not None:
            check.function("when", given)

        def logged_in(request: RequestInfo) -> bool:
            known = request.user is not None and request.api_key not in _OF_A_LOGIN
            return known and (given is None or given(request))

        where["when"] = logged_in
        return self.close(api, times=times, **where)

    def rotate_certificate(self) -> None:
        """Renew the brokers' certificate, by the same authority; open connections go on.

        It needs no removal: the next connections get the new one.

        Raises:
            InvalidArgument: The cluster has no TLS.
        """
        if self.security is None:
            raise InvalidArgument("rotate_certificate() needs a cluster with TLS")
        self.security.rotate_certificate()

    @named
    def on(
        self,
        api: Api,
        function: Hook,
        *,
        at: Literal["before", "after_append", "after_reply"] = "before",
        times: Times = None,
        **where: Unpack[Where],
    ) -> Fault:
        """Call a function of the test for each request of a kind.

        It gets a ``RequestInfo`` and may return a response, which replaces that of the broker: a
        message, or the raw bytes of a frame after its size field; None changes nothing. It may be
        a coroutine function: the request, and later ones on its connection, wait for it. The
        coroutine continues if the connection is lost meanwhile, as when it crashes the broker; it
        is cancelled when the fault is removed or the cluster closed.

        Args:
            api: The API of the requests; None for all.
            function: The function to call. An exception of it closes the connection; ``check`` and
                ``Cluster.close`` raise it.
            at: ``"before"`` the request is executed: if the function returns a response, it isn't.
                ``"after_append"``, once the broker that got it has executed it: a Produce is in
                the leader's log, but with acks=all not yet in those of the followers. The function
                sees the response that will be sent if the followers catch up; there is none yet if
                the request waits for something else (records, members of a group). A response of
                the function ends such waits.
                ``"after_reply"``, once the response was passed to the network, or there is none,
                as with acks=0; the result of the function is ignored.
            times: For how many requests; None for all.
            where: Conditions on the requests.

        Raises:
            InvalidArgument: ``at`` is none of these words.

        Example::

            async def crash(request: RequestInfo) -> None:
                await cluster.crash(request.broker)

            cluster.faults.on("Produce", crash, at="after_append", times=1)
        """
        stage = check.one_of("at", at, _STAGES)
        check.function("function", function, plain=False)

        def act(call: RequestContext, answer: Any) -> object:
            return function(info_of(call, answer))

        detail = f"{at} {check.called(function)}"
        return self.add(Fault(Action.HOOK, stage, api, times, where, detail, act))

    @named
    def answer_bytes(
        self,
        api: Api,
        data: bytes,
        *,
        framed: bool = True,
        times: Times = 1,
        after: bool = False,
        **where: Unpack[Where],
    ) -> Fault:
        """Respond with these bytes; the request is not executed unless ``after``.

        Args:
            api: The API of the requests; None for all.
            data: The bytes: correlation id, header and message as the test needs them.
            framed: Whether a correct size field is sent first; False sends ``data`` alone.
            times: For how many requests; None for all.
            after: Whether the request is executed before.
            where: Conditions on the requests.

        Example::

            cluster.faults.answer_bytes("Metadata", b"\\x7f\\xff\\xff\\xff", framed=False)
        """
        answer = check.raw(data) if framed else Unframed(check.raw(data))
        words = f"{len(answer)} bytes{' after' if after else ''}"
        stage = _late(after)
        return self.add(Fault(Action.HOOK, stage, api, times, where, words, lambda *_: answer))

    @named
    def throttle(
        self, api: ApiName, seconds: float, *, times: Times = 1, **where: Unpack[Where]
    ) -> Fault:
        """Set the throttle time of the response; the connection is not read for as long (KIP-219).

        Removing the fault changes nothing for clients that were throttled before.
        """
        words = f"of seconds from 0 to {_MOST_THROTTLE}"
        check.number("seconds", seconds, words, lambda one: 0 <= one <= _MOST_THROTTLE)

        def act(call: RequestContext, response: Any) -> None:
            response.throttle_time_ms = round(1000 * seconds)

        return self._change(check.api("throttle", api), times, where, f"{seconds:g} s", act)

    @named
    def rewrite(
        self, api: ApiName, function: Rewrite, *, times: Times = 1, **where: Unpack[Where]
    ) -> Fault:
        """Let ``function(request, response)`` change or replace the response.

        A function that returns anything else than a response, bytes or None closes the
        connection, as one that raises does; ``check`` and ``Cluster.close`` raise InvalidArgument.
        """
        check.function("function", function)

        def act(call: RequestContext, response: Any) -> object:
            return function(call.request, response)

        return self._change(check.api("rewrite", api), times, where, check.called(function), act)

    @named
    def corrupt_fetch(
        self, topic: str, partition: int = 0, *, times: Times = 1, broker: int | None = None
    ) -> Fault:
        """Flip the last byte of the records that fetches of a partition return, if any."""
        check.check_where(_FETCH, Where(topic=topic, partition=partition))

        def parts(call: RequestContext, response: Any) -> list[Any]:
            return [
                part
                for one in response.responses
                if call.topic_name(one.topic, one.topic_id) == topic
                for part in one.partitions
                if part.partition_index == partition and part.records
            ]

        def act(call: RequestContext, response: Any) -> None:
            for part in parts(call, response):
                part.records = bytearray(part.records)  # a copy: the log keeps the original
                part.records[-1] ^= 0xFF

        where = Where() if broker is None else Where(broker=broker)
        fault = self._change(_FETCH, times, where, f"{topic}-{partition}", act)
        fault.applies = lambda call, response: bool(parts(call, response))
        return fault

    @named
    def reorder(
        self, api: Api, *, count: int = 2, times: Times = 1, **where: Unpack[Where]
    ) -> Fault:
        """Send the next ``count`` responses on a connection in reverse order.

        Each is kept until all are ready, so a client that waits for each response before its next
        request waits until ``release()``, which sends the responses that are kept. ``times`` counts
        such groups.
        """
        whole("count", count, 2)
        kept: WeakKeyDictionary[Channel, list[bytearray]] = WeakKeyDictionary()

        def act(channel: Channel, frame: bytearray) -> None:
            def flush() -> None:
                for one in reversed(kept.pop(channel)):
                    channel.write(one)

            if not fault.holds(channel):
                kept[channel] = []
                fault.hold(flush, channel)
            kept[channel].append(frame)
            if len(kept[channel]) == count:
                fault.unhold(channel)
                flush()

        fault = self._spoil(api, times, where, f"{count} answers", act)
        return fault

    @named
    def repeat(self, api: Api, *, times: Times = 1, **where: Unpack[Where]) -> Fault:
        """Send a response twice."""

        def act(channel: Channel, frame: bytearray) -> None:
            channel.write(frame)
            channel.write(frame)

        return self._spoil(api, times, where, "", act)

    @named
    def cut_answer(
        self, api: Api, *, byte: int, reset: bool = False, times: Times = 1, **where: Unpack[Where]
    ) -> Fault:
        """Send the first ``byte`` bytes of a response, including its size field, and close.

        Args:
            api: The API of the requests; None for all.
            byte: How many bytes; the connection ends after the response if that has fewer.
            reset: End with a reset, with which those bytes may be lost.
            times: For how many requests; None for all.
            where: Conditions on the requests.
        """
        whole("byte", byte, 0)

        def act(channel: Channel, frame: bytearray) -> None:
            if byte:
                channel.write(frame[:byte])
            channel.cut(reset)

        return self._spoil(api, times, where, f"at byte {byte}", act)

    @named
    def cut_request(
        self, api: Api, *, byte: int, reset: bool = False, times: Times = 1, **where: Unpack[Where]
    ) -> Fault:
        """Close the connection once ``byte`` bytes of a request, including its size field, came.

        It is not executed, and not in the log of requests. With an API, ``client_id`` or
        ``version`` the header must have been read, too, as it contains them. A request that has
        fewer bytes is cut at its end.

        Raises:
            InvalidArgument: ``topic``, ``replica`` or ``when`` is given: they need all of it.
        """
        whole("byte", byte, 0)
        if not where.keys() <= {"broker", "client_id", "version", "connection"}:
            raise InvalidArgument(
                f"cut_request takes broker, client_id, version and connection, not {sorted(where)}"
            )
        fault = Fault(Action.CUT, Stage.ARRIVAL, api, times, where, f"at byte {byte}")
        fault.byte, fault.reset = byte, reset
        return self.add(fault)

    @named
    def trickle(
        self, api: Api, bytes_per_second: float, *, times: Times = 1, **where: Unpack[Where]
    ) -> Fault:
        """Send a response slowly, at that many bytes per second; later responses wait for it."""
        check.number("bytes_per_second", bytes_per_second, "above 0", lambda one: one > 0)

        def act(channel: Channel, frame: bytearray) -> PendingResult[object]:
            return _trickle(fault, channel, frame, bytes_per_second)

        fault = self._spoil(api, times, where, f"{bytes_per_second:g} bytes/s", act)
        return fault

    def _change(
        self, api: ApiName, times: Times, where: Where, detail: str, act: Callable[..., object]
    ) -> Fault:
        return self.add(Fault(Action.CHANGE, Stage.ANSWER, api, times, where, detail, act))

    def _spoil(
        self, api: Api, times: Times, where: Where, detail: str, act: Callable[..., object]
    ) -> Fault:
        return self.add(Fault(Action.SPOIL, Stage.FRAME, api, times, where, detail, act))


def _late(after: bool) -> Stage:
    return Stage.AFTER if after else Stage.BEFORE


def _trickle(
    fault: Fault, channel: Channel, frame: bytearray, bytes_per_second: float
) -> PendingResult[object]:
    """Send a frame slowly, or at once when the fault is released; completes when all was sent."""
    step = max(1, round(bytes_per_second * _STEP_SECONDS))
    cancel: Callable[[], None] | None = None

    def send(count: int) -> None:
        nonlocal cancel
        channel.write(frame[:count])
        del frame[:count]
        if frame:
            cancel = channel.call_later(step / bytes_per_second, lambda: send(step))
        else:
            done.complete(None)

    def stop() -> None:
        fault.unhold(done)
        if cancel is not None:
            cancel()

    done: PendingResult[object] = PendingResult(stop)
    fault.hold(lambda: send(len(frame)), done)
    send(step)
    return done
