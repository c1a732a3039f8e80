"""``FaultList``: faults in the order in which they act, and ``acting``, which finds those that do.

``connection.py`` asks at each stage of a request, ``Call.error_for`` per entry, and a memory
network for what passes. Functions of the test are called here: what one raises is kept for the
test. A coroutine gets a task, and the request waits for it. Tasks outlive the connection, as what
they do may be to crash its broker; they end with their fault at the latest.
"""

from __future__ import annotations

import asyncio
import enum
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from kclient.errors import InvalidArgument, a_or_an
from kclient.protocol.message import Response
from kclient.testing.deferred import Deferred
from kclient.testing.fault import Action, Answer, Fault, Stage
from kclient.testing.fault_arguments import check_brokers
from kclient.testing.request_info import facts_of, info_of

if TYPE_CHECKING:
    from kclient.testing.call import Call

logger = logging.getLogger("kclient.testing")

T = TypeVar("T")

_SHOWN = 10


class Failed(enum.Enum):
    """In place of what a function of the test returned."""

    FAILED = enum.auto()
    """It raised: its error is kept, and the connection must be closed."""


Outcome: TypeAlias = Answer | Failed | None


class FaultList:
    """The faults of a cluster, or the rules of a network.

    Its tasks: one for each call of a coroutine, to the coroutine's end; ``remove`` cancels it.

    Attributes:
        listed: Those that there are; brokers ask it whether there are any.
        node_ids: Of the brokers that the cluster has; None if nobody said so.
    """

    def __init__(self) -> None:
        self.listed: list[Fault] = []
        self.node_ids: Collection[int] | None = None
        self._tasks: dict[asyncio.Future[Any], Fault] = {}
        self._errors: list[BaseException] = []

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

    def add(self, fault: Fault) -> Fault:
        """Let a fault act behind those that there are.

        Raises:
            InvalidArgument: It is about a broker that the cluster doesn't have.
        """
        if self.node_ids is not None:
            check_brokers(fault.where, self.node_ids)
        self.listed[:] = [one for one in self.listed if one.active or one.held]
        self.listed.append(fault)
        fault.owner = self
        return fault

    def remove(self, fault: Fault) -> None:
        """Take one fault back and release what it holds.

        Raises:
            InvalidArgument: It is no fault.
        """
        if not isinstance(fault, Fault):
            raise InvalidArgument(f"fault={fault!r} must be a Fault, such as error() returns")
        if fault in self.listed:
            self.listed.remove(fault)
        for task, owner in tuple(self._tasks.items()):
            if owner is fault and task is not asyncio.current_task():
                task.cancel()
        fault.release()

    def clear(self) -> None:
        """Take all faults back, and then release what they hold: it meets none of them."""
        gone = tuple(self.listed)
        self.listed.clear()
        for fault in gone:
            self.remove(fault)

    def check(self) -> None:
        """Raise what a function of the test raised, the first one if there are several, once."""
        errors, self._errors = self._errors, []
        if not errors:
            return
        first, *others = errors
        for other in others:
            first.add_note(f"and another function of the test raised {other!r}")
        raise first

    async def ended(self) -> None:
        """Wait until the hooks that were cancelled have ended, but not for the one that asks.

        Cancellation: safe; they go on ending.
        """
        me = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not me]
        if tasks:
            await asyncio.wait(tasks)

    def failed(self, error: BaseException) -> None:
        """Keep what a function of the test raised, for ``check``."""
        self._errors.append(error)
        logger.error("a function of the test raised", exc_info=error)

    # Asked by brokers and networks

    def any_at(self, stage: Stage) -> bool:
        """Whether there is a fault of that stage, whatever it is about."""
        for one in self.listed:  # a generator costs more than most lists of faults
            if one.stage is stage:
                return True
        return False

    def acting(
        self, stage: Stage, call: Call | None, facts: Mapping[str, object] = MappingProxyType({})
    ) -> Iterator[Fault]:
        """Return the faults that act, in order; the caller calls ``use`` on each that it obeys.

        A fault acts on a request once, but an ERROR on each of its entries.

        Args:
            stage: What is about to happen.
            call: The request; None before it is decoded, and for a network.
            facts: What the call doesn't tell, by the words of ``Fault.where``: topic and partition
                of an entry, or ``channel``, whose answers a fault may be collecting.
        """
        listed = [one for one in self.listed if one.stage is stage]
        if listed and call is not None:
            facts = {**facts_of(call), **facts}
        return (one for one in listed if self._acts(one, call, facts))

    def _acts(self, fault: Fault, call: Call | None, facts: Mapping[str, object]) -> bool:
        if call is None:
            return fault.active and fault.matches(facts)
        if fault in call.used_faults:
            if fault.action is not Action.ERROR:
                return False
        elif not (
            (fault.active or fault.holds(facts.get("channel")))
            and fault.matches(facts)
            and self._holds_when(fault, call)
        ):
            return False
        if "topic" in facts:
            return fault.concerns([(facts["topic"], facts["partition"])])
        return fault.concerns(call.entries())

    def _holds_when(self, fault: Fault, call: Call) -> bool:
        when = fault.where.get("when")
        return when is None or self._called(lambda: bool(when(info_of(call)))) is True

    # Functions of the test

    def changed(self, call: Call, answer: Any) -> Answer | Failed:
        """The answer as the faults want it; raw bytes are left as they are."""
        for fault in self.acting(Stage.ANSWER, call) if isinstance(answer, Response) else ():
            if fault.applies is None or fault.applies(call, answer):
                fault.use(call)
                changed = self.run(fault, call, answer)
                answer = answer if changed is None else changed
                if not isinstance(answer, Response):
                    break
        return cast("Answer | Failed", answer)

    def run(self, fault: Fault, call: Call, answer: Answer | None) -> Deferred[Outcome] | Outcome:
        """Return what a fault's function returns, or a Deferred of it; None if cancelled."""

        def run() -> Deferred[Outcome] | Outcome:
            outcome = fault.act(call, answer)
            if fault.action is Action.HOOK and inspect.isawaitable(outcome):
                return self._spawn(fault, outcome)
            return _checked(fault, outcome)

        return self._called(run)

    def _spawn(self, fault: Fault, waiting: Awaitable[Any]) -> Deferred[Outcome]:
        answer: Deferred[Outcome] = Deferred()
        task = asyncio.ensure_future(waiting)
        self._tasks[task] = fault

        def ended(_: asyncio.Future[Any]) -> None:
            del self._tasks[task]
            error = None if task.cancelled() else task.exception()
            if error is not None:
                self.failed(error)
                answer.complete(Failed.FAILED)
            elif task.cancelled():
                answer.complete(None)
            else:
                answer.complete(self._called(lambda: _checked(fault, task.result())))

        task.add_done_callback(ended)
        return answer

    def _called(self, function: Callable[[], T]) -> T | Failed:
        """Return what it returns, or FAILED if it raises."""
        try:
            return function()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # what pytest.fail() raises is no Exception
            self.failed(error)
            return Failed.FAILED


def _checked(fault: Fault, outcome: object) -> Answer | None:
    if outcome is None or isinstance(outcome, (Response, bytes)):
        return outcome
    kind = type(outcome).__name__
    text = "must return a response, bytes or None, not"
    if fault.action is Action.HOOK:
        raise InvalidArgument(f"a hook {text} {kind}")
    raise InvalidArgument(f"a function of rewrite() {text} {a_or_an(kind)}")
