"""``Refused`` and ``Hangup``: exceptions with which the embedded broker rejects requests.

The sans-IO files (state, log, rules) raise ``Refused``; the handlers turn it into an error code in
the response. ``Hangup`` closes the connection.
"""

from __future__ import annotations

from kclient.error_codes import ErrorCode


class Refused(Exception):
    """A request, or one entry of it, gets ``code``, with ``message`` if the API has a field for it.

    The text of a message is not Kafka's. There is one where Kafka sends one, too, as the code alone
    doesn't explain what was wrong with the request.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message


def bad_config(message: str) -> Refused:
    """Make a Refused with INVALID_CONFIG."""
    return Refused(ErrorCode.INVALID_CONFIG, message)


def bad_request(message: str) -> Refused:
    """Make a Refused with INVALID_REQUEST."""
    return Refused(ErrorCode.INVALID_REQUEST, message)


class Hangup(Exception):
    """The connection must be closed instead of a response; the text is for the log."""
