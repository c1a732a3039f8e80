"""How a handler responds: at once, later (``PendingResult``), with an error, or by closing.

The sans-IO files (state, log, rules) raise ``ApiError``; the handlers turn it into an error code in
the response. ``CloseConnection`` closes the connection. A handler that has to wait (a fetch without
data, a request that a fault holds back) returns a ``PendingResult``: the connection takes its value
when it comes and reads no further request until then.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from kclient.error_codes import ErrorCode
from kclient.protocol.headers import API_VERSIONS_KEY
from kclient.protocol.message import Response

if TYPE_CHECKING:
    from kclient.testing.request_context import RequestContext

T = TypeVar("T")
R = TypeVar("R", bound=Response)

Answer: TypeAlias = Response | bytes
"""A message, or the raw bytes of a frame after its size field."""

_RESPONSE_START = struct.Struct(">ii")
_SIZE = struct.Struct(">i")


class ApiError(Exception):
    """A request, or one entry of it, gets ``code``, with ``message`` if the API has a field for it.

    The text of a message is not Kafka's. There is one where Kafka sends one, too, as the code alone
    doesn't explain what was wrong with the request.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message


def bad_config(message: str) -> ApiError:
    """Make an ApiError with INVALID_CONFIG."""
    return ApiError(ErrorCode.INVALID_CONFIG, message)


def bad_request(message: str) -> ApiError:
    """Make an ApiError with INVALID_REQUEST."""
    return ApiError(ErrorCode.INVALID_REQUEST, message)


class CloseConnection(Exception):
    """The connection must be closed instead of a response; the text is for the log."""


class PendingResult(Generic[T]):
    """A value for one listener, now or later; it can be abandoned.

    Args:
        abandon: Called once, on completion or cancellation, to release timers and listeners.

    Attributes:
        draft: What the value will be unless something else happens, where that is known.
    """

    __slots__ = ("_abandon", "_done", "_listener", "_value", "draft")

    def __init__(self, abandon: Callable[[], None] | None = None) -> None:
        self._abandon = abandon
        self._done = False
        self._listener: Callable[[T], None] | None = None
        self._value: list[T] = []
        self.draft: T | None = None

    @property
    def done(self) -> bool:
        """Completed or cancelled."""
        return self._done

    def complete(self, value: T) -> None:
        """Set the value; does nothing if it was set or cancelled before."""
        if self._finish():
            self._value.append(value)
            if self._listener is not None:
                self._listener(value)

    def cancel(self) -> None:
        """The value is not needed any more."""
        self._finish()

    def then(self, listener: Callable[[T], None]) -> None:
        """Call ``listener`` with the value: at once if it is there, never if cancelled."""
        if self._value:
            listener(self._value[0])
        else:
            self._listener = listener

    def _finish(self) -> bool:
        if self._done:
            return False
        self._done = True
        if self._abandon is not None:
            self._abandon()
        return True


def whole(
    call: RequestContext, start: Callable[[], PendingResult[R]], refuse: Callable[[ErrorCode], R]
) -> PendingResult[R] | R:
    """Execute a request with ``start``, unless a fault sets an error: then ``refuse`` responds."""
    code = call.error_for()
    if code is not None:
        return refuse(code)
    outcome = start()
    answer: PendingResult[R] = PendingResult(outcome.cancel)

    def came(response: R) -> None:
        late = call.error_for(after=True)
        answer.complete(response if late is None else refuse(late))

    outcome.then(came)
    return answer


class PendingParts(Generic[R]):
    """A response that is sent once all its parts are filled in.

    Args:
        response: The response.
    """

    def __init__(self, response: R) -> None:
        self._response = response
        self._answer: PendingResult[R] = PendingResult()
        self._missing = 1

    def expect(self) -> Callable[[], None]:
        """Add a part; the returned function must be called when it is filled in."""
        self._missing += 1
        return self._came

    def close(self) -> PendingResult[R]:
        """No more parts will be added: return the response, due when all are filled in."""
        self._came()
        return self._answer

    def _came(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._answer.complete(self._response)


class Unframed(bytes):
    """A response that is sent as it is, without a size field."""


def encode_frame(response: Response, version: int, correlation_id: int) -> bytearray:
    """A whole frame: size, header, message; not copied again, as it may be large."""
    out = bytearray(_RESPONSE_START.size)
    first = response.FIRST_FLEXIBLE
    if first is not None and version >= first and response.API_KEY != API_VERSIONS_KEY:
        out.append(0)
    response.encode_into(out, version)
    _RESPONSE_START.pack_into(out, 0, len(out) - _SIZE.size, correlation_id)
    return out


def encode_answer(answer: Answer, version: int, correlation_id: int) -> bytearray:
    """A whole frame of a response, or of the bytes that a fault returned instead."""
    if isinstance(answer, Response):
        return encode_frame(answer, version, correlation_id)
    if isinstance(answer, Unframed):
        return bytearray(answer)
    return bytearray(_SIZE.pack(len(answer)) + answer)
