"""``FaultList``: faults in the order in which they act, and ``acting``, which finds matching ones.

``connection.py`` queries it at each stage of a request, ``RequestContext.error_for`` per entry, and
a memory network for its bytes. It calls the test's functions: an exception of one is kept for the
test. A coroutine runs in a task, and the request waits for it. Tasks outlive the connection, as
they may crash its broker; they end with their fault at the latest.
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
from kclient.testing.fault import Action, Fault, Stage
from kclient.testing.fault_arguments import check_brokers
from kclient.testing.request_info import facts_of, info_of
from kclient.testing.responses import Answer, PendingResult

if TYPE_CHECKING:
    from kclient.testing.cluster_security import ClusterSecurity
    from kclient.testing.request_context import RequestContext

logger = logging.getLogger("kclient.testing")

T = TypeVar("T")

_SHOWN = 10


class Failed(enum.Enum):
    """Result of a test's function that raised."""

    FAILED = enum.auto()
    """The error is kept, and the connection must be closed."""


Outcome: TypeAlias = Answer | Failed | None


class FaultList:
    """The faults of a cluster, or the rules of a network.

    Its tasks: one for each call of a coroutine, to the coroutine's end; ``remove`` cancels it.

    Attributes:
        listed: The faults; brokers test whether it is empty.
        node_ids: Of the brokers that the cluster has; None if unknown.
        security: That of the cluster.
    """

    def __init__(self) -> None:
        self.listed: list[Fault] = []
        self.node_ids: Collection[int] | None = None
        self.security: ClusterSecurity | None = None
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
        """Faults that never acted and still might: their conditions may match no request."""
        return [one for one in self.listed if one.active and not one.hits]

    def add(self, fault: Fault) -> Fault:
        """Add a fault; it acts after the existing ones.

        Raises:
            InvalidArgument: It names a broker that the cluster doesn't have.
        """
        if self.node_ids is not None:
            check_brokers(fault.where, self.node_ids)
        self.listed[:] = [one for one in self.listed if one.active or one.held]
        self.listed.append(fault)
        fault.owner = self
        return fault

    def remove(self, fault: Fault) -> None:
        """Remove a fault and release the requests it holds.

        Raises:
            InvalidArgument: It is not a ``Fault``.
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
        """Remove all faults, then release what they hold, so that no other fault acts on it."""
        gone = tuple(self.listed)
        self.listed.clear()
        for fault in gone:
            self.remove(fault)

    def check(self) -> None:
        """Raise the first error that functions of the test raised since the last call, if any."""
        errors, self._errors = self._errors, []
        if not errors:
            return
        first, *others = errors
        for other in others:
            first.add_note(f"and another function of the test raised {other!r}")
        raise first

    async def ended(self) -> None:
        """Wait until all hooks have ended, except for the one that calls this.

        Cancellation: safe; they end all the same.
        """
        me = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not me]
        if tasks:
            await asyncio.wait(tasks)

    def failed(self, error: BaseException) -> None:
        """Keep an error of a function of the test, for ``check``."""
        self._errors.append(error)
        logger.error("a function of the test raised", exc_info=error)

    # Called by brokers and networks

    def any_at(self, stage: Stage) -> bool:
        """Whether there is a fault of that stage, whatever its conditions."""
        for one in self.listed:  # a generator would cost more: most lists are short
            if one.stage is stage:
                return True
        return False

    def acting(
        self,
        stage: Stage,
        call: RequestContext | None,
        facts: Mapping[str, object] = MappingProxyType({}),
    ) -> Iterator[Fault]:
        """Return the faults that act, in order; the caller calls ``use`` on each that it applies.

        A fault acts on a request once, but an ERROR on each of its entries.

        Args:
            stage: The current stage.
            call: The request; None before it is decoded, and for a network.
            facts: Facts that the call doesn't have, by the keys of ``Fault.where``: topic and
                partition of an entry, or ``channel``, whose responses a fault may be collecting.
        """
        listed = [one for one in self.listed if one.stage is stage]
        if listed and call is not None:
            facts = {**facts_of(call), **facts}
        return (one for one in listed if self._acts(one, call, facts))

    def _acts(self, fault: Fault, call: RequestContext | None, facts: Mapping[str, object]) -> bool:
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

    def _holds_when(self, fault: Fault, call: RequestContext) -> bool:
        when = fault.where.get("when")
        return when is None or self._called(lambda: bool(when(info_of(call)))) is True

    # Functions of the test

    def changed(self, call: RequestContext, answer: Any) -> Answer | Failed:
        """The response after the faults that change it; raw bytes are left as they are."""
        for fault in self.acting(Stage.ANSWER, call) if isinstance(answer, Response) else ():
            if fault.applies is None or fault.applies(call, answer):
                fault.use(call)
                changed = self.run(fault, call, answer)
                answer = answer if changed is None else changed
                if not isinstance(answer, Response):
                    break
        return cast("Answer | Failed", answer)

    def run(
        self, fault: Fault, call: RequestContext, answer: Answer | None
    ) -> PendingResult[Outcome] | Outcome:
        """Return the result of a fault's function, or a PendingResult of it; None if cancelled."""

        def run() -> PendingResult[Outcome] | Outcome:
            outcome = fault.act(call, answer)
            if fault.action is Action.HOOK and inspect.isawaitable(outcome):
                return self._spawn(fault, outcome)
            return _checked(fault, outcome)

        return self._called(run)

    def _spawn(self, fault: Fault, waiting: Awaitable[Any]) -> PendingResult[Outcome]:
        answer: PendingResult[Outcome] = PendingResult()
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
        """The result of the function, or FAILED if it raises."""
        try:
            return function()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # pytest.fail() raises one that is no Exception
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
