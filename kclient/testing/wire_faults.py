"""Faults of the bytes on the wire: cut, repeated, in another order, slow, or any others.

``Faults`` has them with all the others; ``answer_faults.py`` carries out those of answers.
"""

from __future__ import annotations

from typing import Unpack

from kclient.errors import InvalidArgument
from kclient.testing import fault_arguments as check
from kclient.testing.answer_faults import AnswerFaults
from kclient.testing.api_names import ApiName
from kclient.testing.arguments import whole
from kclient.testing.deferred import Deferred
from kclient.testing.fault import Action, Fault, Hook, Spoil, Stage, Unframed
from kclient.testing.fault_arguments import Where, named
from kclient.testing.fault_list import FaultList


class WireFaults(FaultList):
    """The part of ``Faults`` for bytes; see there for what all its methods take."""

    @named
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
        answer = check.raw(data) if framed else Unframed(check.raw(data))
        stage = Stage.AFTER if after else Stage.BEFORE
        detail = f"{len(answer)} bytes{' after' if after else ''}"
        return self._add_hook(api, lambda _: answer, stage, times, where, detail)

    @named
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
        whole("count", count, 2)

        def spoil(answers: AnswerFaults, frame: bytearray) -> None:
            answers.reorder(fault, frame, count)

        fault = self._add_spoiling(api, spoil, times, where, f"{count} answers")
        return fault

    @named
    def repeat(
        self, api: ApiName | None, *, times: int | None = 1, **where: Unpack[Where]
    ) -> Fault:
        """Send an answer twice."""
        return self._add_spoiling(api, lambda answers, frame: answers.repeat(frame), times, where)

    @named
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
        whole("byte", byte, 0)
        return self._add_spoiling(
            api,
            lambda answers, frame: answers.cut(frame, byte, reset),
            times,
            where,
            f"at byte {byte}",
        )

    @named
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
        whole("byte", byte, 0)
        if not where.keys() <= {"broker", "client_id", "version", "connection"}:
            raise InvalidArgument(
                f"cut_request takes broker, client_id, version and connection, not {sorted(where)}"
            )
        fault = Fault(Action.CUT, api, times, False, where)
        fault.byte, fault.reset = byte, reset
        fault.detail = f"at byte {byte}"
        return self._add(fault)

    @named
    def trickle(
        self,
        api: ApiName | None,
        bytes_per_second: float,
        *,
        times: int | None = 1,
        **where: Unpack[Where],
    ) -> Fault:
        """Send an answer slowly, at so many bytes a second; what comes behind it waits."""
        check.pace(bytes_per_second)

        def spoil(answers: AnswerFaults, frame: bytearray) -> Deferred[object]:
            return answers.trickle(fault, frame, bytes_per_second)

        detail = f"{bytes_per_second:g} bytes/s"
        fault = self._add_spoiling(api, spoil, times, where, detail)
        return fault

    def _add_spoiling(
        self,
        api: ApiName | None,
        spoil: Spoil,
        times: int | None,
        where: Where,
        detail: str = "",
    ) -> Fault:
        fault = Fault(Action.SPOIL, api, times, True, where)
        fault.spoil = spoil
        fault.detail = detail
        return self._add(fault)

    def _add_hook(
        self,
        api: ApiName | None,
        function: Hook,
        stage: Stage,
        times: int | None,
        where: Where,
        detail: str,
    ) -> Fault:
        fault = Fault(Action.HOOK, api, times, stage is not Stage.BEFORE, where)
        fault.stage = stage
        fault.hook = function
        fault.detail = detail
        return self._add(fault)
