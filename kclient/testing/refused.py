"""``Refused`` and ``Hangup``: how the rules of the embedded broker say no.

``Refused`` is raised by the sans-IO files (state, log, rules) and turned into an error code by the
handlers, which reaches a client on the wire. ``Hangup`` ends the connection.
"""

from __future__ import annotations

from kclient.error_codes import ErrorCode


class Refused(Exception):
    """A request, or one entry of it, gets ``code``, with ``message`` where the API has room.

    A message is a sentence of our own. There is one where Kafka sends one, too, as the code alone
    doesn't say what was wrong with the request.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message


def bad_config(message: str) -> Refused:
    """INVALID_CONFIG."""
    return Refused(ErrorCode.INVALID_CONFIG, message)


def bad_request(message: str) -> Refused:
    """INVALID_REQUEST."""
    return Refused(ErrorCode.INVALID_REQUEST, message)


class Hangup(Exception):
    """The connection must be closed instead of an answer; the text is for the log."""
