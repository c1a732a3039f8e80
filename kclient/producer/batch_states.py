"""The states of a batch and its transition table. ``batch`` describes the theory.

Separate from the machine, since that is compiled and both builds must share the same states.
"""

from __future__ import annotations

import enum


class BatchState(enum.Enum):
    """The state of a batch."""

    # By identity, like equality: Enum.__hash__ is Python code, and the tables are read per batch.
    __hash__ = object.__hash__

    OPEN = "takes records"
    SEALED = "takes no more records; was never sent"
    IN_FLIGHT = "is in a request whose answer is awaited"
    RETRYING = "was sent and must be sent again, with the same sequence numbers"
    ABANDONED = "its time is over and its deliveries failed, but the answer is still awaited"
    DONE = "the broker has it"
    FAILED = "given up"
    SPLIT = "goes on as several smaller batches"


class BatchEvent(enum.Enum):
    """An event of a batch."""

    __hash__ = object.__hash__

    SEAL = "full, lingered, flushed or sent"
    SEND = "put into a request"
    ACKNOWLEDGE = "the broker has it"
    RETRY = "the attempt failed in a way that may pass"
    REJECT = "the attempt failed for good, or the producer closes"
    SPLIT = "the broker takes only smaller batches"
    EXPIRE = "delivery_timeout passed"
    RENUMBER = "its partition starts over under a new epoch, with no response outstanding"


_S, _E = BatchState, BatchEvent

TRANSITIONS: dict[BatchState, dict[BatchEvent, BatchState]] = {
    _S.OPEN: {_E.SEAL: _S.SEALED},
    _S.SEALED: {_E.SEND: _S.IN_FLIGHT, _E.EXPIRE: _S.FAILED, _E.REJECT: _S.FAILED},
    _S.IN_FLIGHT: {
        _E.ACKNOWLEDGE: _S.DONE,
        _E.RETRY: _S.RETRYING,
        _E.REJECT: _S.FAILED,
        _E.SPLIT: _S.SPLIT,
        _E.EXPIRE: _S.ABANDONED,
    },
    _S.RETRYING: {
        _E.SEND: _S.IN_FLIGHT,
        _E.EXPIRE: _S.FAILED,
        _E.REJECT: _S.FAILED,
        _E.RENUMBER: _S.SEALED,
    },
    _S.ABANDONED: {
        _E.ACKNOWLEDGE: _S.DONE,
        _E.RETRY: _S.FAILED,
        _E.REJECT: _S.FAILED,
        _E.SPLIT: _S.FAILED,
    },
    _S.DONE: {},
    _S.FAILED: {},
    _S.SPLIT: {},
}

UNDER_WAY = frozenset({BatchState.IN_FLIGHT, BatchState.ABANDONED})
"""States in which a response is awaited."""
