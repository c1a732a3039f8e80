"""Answers of the group APIs that name one error for the whole request, and faults for them.

Used by the handlers whose answer may come later than the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from kclient.error_codes import ErrorCode
from kclient.protocol.message import Response
from kclient.testing.call import Call
from kclient.testing.deferred import Deferred

T = TypeVar("T", bound=Response)


def whole(
    call: Call, start: Callable[[], Deferred[T]], refuse: Callable[[ErrorCode], T]
) -> Deferred[T] | T:
    """Carry a request out with ``start``, unless a fault wants it answered by ``refuse``."""
    code = call.error_for()
    if code is not None:
        return refuse(code)
    outcome = start()
    answer: Deferred[T] = Deferred(outcome.cancel)

    def came(response: T) -> None:
        late = call.error_for(after=True)
        answer.complete(response if late is None else refuse(late))

    outcome.then(came)
    return answer


class Gathering(Generic[T]):
    """A response that is sent once all its parts are filled in.

    Args:
        response: What is sent.
    """

    def __init__(self, response: T) -> None:
        self._response = response
        self._answer: Deferred[T] = Deferred()
        self._missing = 1

    def expect(self) -> Callable[[], None]:
        """One part more; to be called when it is there."""
        self._missing += 1
        return self._came

    def close(self) -> Deferred[T]:
        """All parts are expected now: the answer, when they are there."""
        self._came()
        return self._answer

    def _came(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._answer.complete(self._response)
