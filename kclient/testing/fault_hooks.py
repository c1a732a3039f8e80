"""Runs the functions that tests give to ``faults.on``, plain ones and coroutines.

``Faults`` has one; ``connection`` runs hooks through it. A coroutine gets a task, and the request
waits for it. Tasks outlive the connection, as what they do may be to crash its broker; they end
with their fault at the latest. What a function raises is kept for the test.
"""

from __future__ import annotations

import asyncio
import enum
import inspect
import logging
from collections.abc import Awaitable
from typing import Any, TypeAlias

from kclient.errors import InvalidArgument
from kclient.protocol.message import Response
from kclient.testing.deferred import Deferred
from kclient.testing.fault import Answer, Fault
from kclient.testing.request_info import RequestInfo

logger = logging.getLogger("kclient.testing")


class Failed(enum.Enum):
    """In place of what a hook returned."""

    FAILED = enum.auto()
    """It raised: its error is kept, and the connection must be closed."""


Outcome: TypeAlias = Answer | Failed | None


class FaultHooks:
    """The tasks of hooks, and what went wrong in functions of the test.

    Its tasks: one for each call of a coroutine, to the coroutine's end; ``cancel`` stops it.
    """

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Future[Any], Fault] = {}
        self._errors: list[BaseException] = []

    def call(self, fault: Fault, info: RequestInfo) -> Deferred[Outcome] | Outcome:
        """Call a hook: what it returned, or a Deferred of it, which gets None if cancelled."""
        if fault.hook is None:
            return None
        try:
            outcome = fault.hook(info)
            if inspect.isawaitable(outcome):
                return self._spawn(fault, outcome)
            return _checked(outcome)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # what pytest.fail() raises is no Exception
            self.failed(error)
            return Failed.FAILED

    def _spawn(self, fault: Fault, waiting: Awaitable[Any]) -> Deferred[Outcome]:
        answer: Deferred[Outcome] = Deferred()
        task = asyncio.ensure_future(waiting)
        self._tasks[task] = fault

        def ended(_: asyncio.Future[Any]) -> None:
            del self._tasks[task]
            answer.complete(self._outcome(task))

        task.add_done_callback(ended)
        return answer

    def _outcome(self, task: asyncio.Future[Any]) -> Outcome:
        if task.cancelled():
            return None
        try:
            return _checked(task.result())
        except BaseException as error:
            self.failed(error)
            return Failed.FAILED

    def failed(self, error: BaseException) -> None:
        """A function of the test raised; ``check`` tells the test."""
        self._errors.append(error)
        logger.error("a function of the test raised", exc_info=error)

    def cancel(self, fault: Fault) -> None:
        """Stop the coroutines of a fault, but not the one that asks for it."""
        for task, owner in tuple(self._tasks.items()):
            if owner is fault and task is not asyncio.current_task():
                task.cancel()

    async def ended(self) -> None:
        """Wait for coroutines, those that were cancelled; not for the one that asks.

        Cancellation: safe; they go on ending.
        """
        me = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not me]
        if tasks:
            await asyncio.wait(tasks)

    def check(self) -> None:
        """Raise the first error that was kept, and forget them all."""
        errors, self._errors = self._errors, []
        if not errors:
            return
        first, *others = errors
        for other in others:
            first.add_note(f"and another function of the test raised {other!r}")
        raise first


def _checked(outcome: object) -> Answer | None:
    if outcome is None or isinstance(outcome, (Response, bytes)):
        return outcome
    raise InvalidArgument(
        f"a hook must return a response, bytes or None, not {type(outcome).__name__}"
    )
