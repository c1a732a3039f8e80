"""Responses of the group APIs that have one error for the whole request, and faults for them.

Used by the handlers whose response may come later than the call.
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
    """Execute a request with ``start``, unless a fault sets an error: then ``refuse`` responds."""
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
        response: The response.
    """

    def __init__(self, response: T) -> None:
        self._response = response
        self._answer: Deferred[T] = Deferred()
        self._missing = 1

    def expect(self) -> Callable[[], None]:
        """Add a part; the returned function must be called when it is filled in."""
        self._missing += 1
        return self._came

    def close(self) -> Deferred[T]:
        """No more parts will be added: return the response, due when all are filled in."""
        self._came()
        return self._answer

    def _came(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._answer.complete(self._response)
