"""The fault wall: make brokers err, stall, lose and lie on purpose.

Tests use ``cluster.faults``. ``wire_faults.py`` has those of the bytes on the wire, ``fault.py``
says what one fault is, ``fault_arguments.py`` what may be asked for; brokers ask ``fault_list.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, Unpack

from kclient.error_codes import ErrorCode
from kclient.protocol.message import Response
from kclient.testing import fault_arguments as check
from kclient.testing.answer_changes import Corruption, Throttle
from kclient.testing.api_names import ApiName, served_key_of
from kclient.testing.fault import Action, Fault, Hook, Stage
from kclient.testing.fault_arguments import Where, named
from kclient.testing.wire_faults import WireFaults

Rewrite: TypeAlias = Callable[[Any, Any], "Response | bytes | None"]
"""Gets request and response; returns what is sent: a message, or the raw bytes of a frame after
its size field. None sends the response that it was given, which it may have changed."""

_FETCH = 1
_STAGES = {
    "before": Stage.BEFORE,
    "after_append": Stage.AFTER_APPEND,
    "after_reply": Stage.AFTER_REPLY,
}


class Faults(WireFaults):
    """All faults of a cluster.

    Every method takes the API (``"Produce"``, ``ProduceRequest`` or ``0``; None for all where that
    makes sense), ``times`` (how many requests; None for all) and, as keywords, which requests:
    ``broker``, ``client_id``, ``topic``, ``partition``, ``version``, ``connection``, ``replica``,
    ``when``. Requests of followers are left alone unless ``replica`` names one, or ``"any"``.
    ``after=True`` acts when the request was carried out, so that a record is in the log though the
    answer says otherwise or never comes. Each returns the ``Fault``, whose ``hits`` tell how often
    it acted (``unused`` has those that never did); ``with`` takes it back at the end of a block,
    and what it holds back then goes on at once. Those added first act first. What can't be meant
    raises InvalidArgument: a misspelt word, an API that isn't served, a broker that isn't there.

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

    @named
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
        ``after`` makes no difference to what only reads.
        """
        key = served_key_of(check.api("error", api))
        check.check_error_where(key, where)
        fault = Fault(Action.ERROR, key, times, after and check.errs_late(key), where)
        fault.code = check.error_code(code)
        fault.detail = fault.code.name
        return self._add(fault)

    @named
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

    @named
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

    @named
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
        fault.seconds = check.wait_seconds(seconds)
        fault.detail = f"{seconds:g} s"
        return self._add(fault)

    @named
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

    @named
    def lose_requests(
        self, api: ApiName | None, times: int | None = 1, **where: Unpack[Where]
    ) -> Fault:
        """Close the connection on requests, which are not carried out.

        Example::

            cluster.faults.lose_requests("Produce", 2)
        """
        return self.close(api, times=times, **where)

    @named
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

    @named
    def hang(self, **where: Unpack[Where]) -> Fault:
        """Answer nothing, and carry nothing out, until it is removed.

        Connections are taken, and those that asked something meanwhile stay deaf for good: what
        they asked is lost. A broker that stands still and goes on where it was, as one whose
        machine was suspended, is ``hold(None, times=None, broker=2)``.

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
        stage = check.one_of("at", at, _STAGES)
        check.function("function", function, plain=False)
        return self._add_hook(api, function, stage, times, where, f"{at} {check.called(function)}")

    @named
    def throttle(
        self, api: ApiName, seconds: float, *, times: int | None = 1, **where: Unpack[Where]
    ) -> Fault:
        """Answer with a throttle time; the connection is not read for as long (KIP-219).

        The end of the fault changes nothing for clients that were told to wait.
        """
        throttle = Throttle(check.throttle_ms(seconds))
        fault = Fault(Action.CHANGE, check.api("throttle", api), times, True, where)
        fault.change = throttle.change
        fault.detail = f"{seconds:g} s"
        return self._add(fault)

    @named
    def rewrite(
        self, api: ApiName, function: Rewrite, *, times: int | None = 1, **where: Unpack[Where]
    ) -> Fault:
        """Let ``function(request, response)`` change or replace the answer.

        A function that returns anything else than a response, bytes or None closes the
        connection, as one that raises does; ``check`` and ``Cluster.close`` raise InvalidArgument.
        """
        check.function("function", function)
        fault = Fault(Action.CHANGE, check.api("rewrite", api), times, True, where)
        fault.change = lambda call, response: check.rewritten(function(call.request, response))
        fault.detail = check.called(function)
        return self._add(fault)

    @named
    def corrupt_fetch(
        self, topic: str, partition: int = 0, *, times: int | None = 1, broker: int | None = None
    ) -> Fault:
        """Flip the last byte of the records that fetches of a partition return, if any."""
        check.check_where(_FETCH, Where(topic=topic, partition=partition))
        where = Where() if broker is None else Where(broker=broker)
        fault = Fault(Action.CHANGE, _FETCH, times, True, where)
        fault.detail = f"{topic}-{partition}"
        corruption = Corruption(topic, partition)
        fault.applies, fault.change = corruption.applies, corruption.change
        return self._add(fault)
