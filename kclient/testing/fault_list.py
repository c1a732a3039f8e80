"""``FaultList``: the faults of a cluster as its brokers ask them; ``Faults`` adds the tests' doors.

``connection.py`` asks around each request, and handlers ask per entry (``Call.error_for``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kclient.error_codes import ErrorCode
from kclient.errors import InvalidArgument
from kclient.protocol.message import Response
from kclient.testing.answer_faults import AnswerFaults
from kclient.testing.call import Call
from kclient.testing.deferred import Deferred
from kclient.testing.fault import Action, Answer, Fault, Stage
from kclient.testing.fault_arguments import check_brokers
from kclient.testing.fault_hooks import Failed, FaultHooks, Outcome
from kclient.testing.request_info import info_of

_GATES = (Action.CLOSE, Action.DROP, Action.WAIT, Action.HOOK)
_SIZE_FIELD = 4
_SHOWN = 10


class FaultList:
    """Faults in the order in which they act.

    Attributes:
        listed: Those that there are; brokers ask it whether there are any.
        node_ids: Of the brokers that the cluster has; None if nobody said so.
    """

    def __init__(self) -> None:
        self.listed: list[Fault] = []
        self.node_ids: Collection[int] | None = None
        self._hooks = FaultHooks()

    def __iter__(self) -> Iterator[Fault]:
        return iter(tuple(self.listed))

    def __bool__(self) -> bool:
        return bool(self.listed)

    def __repr__(self) -> str:
        if not self.listed:
            return "<Faults: none>"
        shown = [f"\n  {fault!r}" for fault in self.listed[:_SHOWN]]
        more = len(self.listed) - len(shown)
        if more:
            shown.append(f"\n  ... and {more} more")
        return f"<Faults: {len(self.listed)}{''.join(shown)}>"

    @property
    def unused(self) -> list[Fault]:
        """Those that never acted and still might: is what they are for what the client asks?"""
        return [one for one in self.listed if one.active and not one.hits]

    def remove(self, fault: Fault) -> None:
        """Take one fault back and release what it holds.

        Raises:
            InvalidArgument: It is no fault.
        """
        if not isinstance(fault, Fault):
            raise InvalidArgument(f"fault={fault!r} must be a Fault, such as error() returns")
        if fault in self.listed:
            self.listed.remove(fault)
        self._hooks.cancel(fault)
        fault.release()

    def clear(self) -> None:
        """Take all faults back, and then release what they hold: it meets none of them."""
        gone = tuple(self.listed)
        self.listed.clear()
        for fault in gone:
            self.remove(fault)

    def check(self) -> None:
        """Raise what a function of the test raised, the first one if there are several, once."""
        self._hooks.check()

    async def ended(self) -> None:
        """Wait until the hooks that were cancelled have ended.

        Cancellation: safe; they go on ending.
        """
        await self._hooks.ended()

    def failed(self, error: BaseException) -> None:
        """Keep what a function of the test raised, for ``check``."""
        self._hooks.failed(error)

    def _add(self, fault: Fault) -> Fault:
        if self.node_ids is not None:
            check_brokers(fault.where, self.node_ids)
        self.listed[:] = [one for one in self.listed if one.active or one.held]
        self.listed.append(fault)
        fault.owner = self
        return fault

    # What brokers ask

    def error_for(
        self, call: Call, topic: str | None, partition: int | None, *, after: bool
    ) -> ErrorCode | None:
        """The code that an entry of a request is to be answered with, if any."""
        for fault in self.listed:
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

    def next_gate(self, call: Call, stage: Stage) -> Fault | None:
        """The next fault that closes, drops, holds or looks at this request, or its answer."""
        for fault in self.listed:
            if (
                fault.action in _GATES
                and fault.stage is stage
                and fault not in call.used_faults
                and fault.concerns(call)
                and fault.concerns_any(call)
            ):
                call.used_faults.append(fault)
                fault.use()
                return fault
        return None

    def call_hook(
        self, fault: Fault, call: Call, response: Answer | None
    ) -> Deferred[Outcome] | Outcome:
        """Call the function of a HOOK."""
        return self._hooks.call(fault, info_of(call, response))

    def change(self, call: Call, answer: Answer) -> Answer | Failed:
        """The answer as the faults want it; raw bytes are left as they are."""
        for fault in tuple(self.listed):
            if not isinstance(answer, Response):
                return answer
            if (
                fault.change is not None
                and fault.concerns(call)
                and fault.concerns_any(call)
                and fault.applies(call, answer)
            ):
                fault.use()
                try:
                    changed = fault.change(call, answer)
                except (KeyboardInterrupt, SystemExit):
                    raise
                except BaseException as error:  # what pytest.fail() raises is no Exception
                    self.failed(error)
                    return Failed.FAILED
                answer = answer if changed is None else changed
        return answer

    def next_spoiling(self, call: Call, answers: AnswerFaults) -> Fault | None:
        """The fault that sends this answer its own way, or keeps it; one per answer."""
        for fault in self.listed:
            if fault.action is not Action.SPOIL:
                continue
            begun = answers.collects(fault)
            if (begun or fault.active) and fault.matches(call) and fault.concerns_any(call):
                if not begun:
                    fault.use()
                return fault
        return None

    def next_cut(self, node_id: int, connection: int, start: memoryview, size: int) -> Fault | None:
        """The fault that ends a connection at the ``start`` of a request that has ``size``."""
        for fault in self.listed:
            if (
                fault.action is Action.CUT
                and fault.active
                and len(start) >= min(fault.byte - _SIZE_FIELD, size)
                and fault.matches_start(node_id, connection, start)
            ):
                fault.use()
                return fault
        return None
