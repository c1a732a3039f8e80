"""What each error code means for a membership: one table of (API, code). Sans-IO.

``joining``, ``heartbeats`` and ``membership`` call ``action_for`` after each response; this is the
one place of the package where codes become decisions. ``HINTS`` are remedies for some of them.

FATAL is only an error that lasts whatever other members do: a setting of ours (session timeout,
group id, protocols, or one that the brokers are too old for) or a name that another member has now.
Authorizations are granted and removed, groups get space again, brokers recover: such an error is
LATER, or RETRY.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from kclient.error_codes import TABLE, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping


class Api(enum.Enum):
    """The API of a response."""

    FIND = "FindCoordinator"
    JOIN = "JoinGroup"
    SYNC = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    LEAVE = "LeaveGroup"
    COMMIT = "OffsetCommit"


class ErrorAction(enum.Enum):
    """What follows from an error code."""

    KEEP = "nothing: the membership goes on as it was"
    RETRY = "the coordinator can't answer at the moment: ask it again after a while"
    ELSEWHERE = "another broker coordinates: find it, and ask it the same"
    TAKE_ID = "a member id was given: ask again with it, at once (KIP-394)"
    REJOIN = "the group rebalances: join again, as the same member"
    OVER = "the generation is over: what was assigned is lost; join again with the same member id"
    FORGET = "the coordinator doesn't know the member: lost, too, and the member id with it"
    DONE = "that is as good as success"
    LATER = "refused, but that may pass: the user is notified, and a much later attempt follows"
    FATAL = "no further attempt can mend it"


_C, _V = ErrorCode, ErrorAction
_COORDINATOR: Final[Mapping[int, ErrorAction]] = {
    _C.COORDINATOR_LOAD_IN_PROGRESS: _V.RETRY,
    _C.COORDINATOR_NOT_AVAILABLE: _V.ELSEWHERE,
    _C.NOT_COORDINATOR: _V.ELSEWHERE,
}
_ENDED: Final[Mapping[int, ErrorAction]] = {
    _C.ILLEGAL_GENERATION: _V.OVER,
    _C.UNKNOWN_MEMBER_ID: _V.FORGET,
    _C.FENCED_INSTANCE_ID: _V.FATAL,
    _C.REBALANCE_IN_PROGRESS: _V.REJOIN,
}
ERROR_ACTIONS: Final[Mapping[Api, Mapping[int, ErrorAction]]] = {
    Api.FIND: {
        _C.COORDINATOR_LOAD_IN_PROGRESS: _V.RETRY,
        _C.COORDINATOR_NOT_AVAILABLE: _V.RETRY,
        _C.NOT_COORDINATOR: _V.RETRY,
        _C.UNKNOWN_SERVER_ERROR: _V.RETRY,
        _C.GROUP_AUTHORIZATION_FAILED: _V.LATER,
        _C.INVALID_GROUP_ID: _V.FATAL,
        _C.UNSUPPORTED_VERSION: _V.FATAL,
    },
    Api.JOIN: {
        **_COORDINATOR,
        **_ENDED,
        _C.MEMBER_ID_REQUIRED: _V.TAKE_ID,
        # Brokers report it while they write to the log what they were about to respond.
        _C.REBALANCE_IN_PROGRESS: _V.RETRY,
        _C.UNKNOWN_SERVER_ERROR: _V.RETRY,
        # Only another setting helps, of this member or of all the others.
        _C.INCONSISTENT_GROUP_PROTOCOL: _V.FATAL,
        _C.INVALID_SESSION_TIMEOUT: _V.FATAL,
        _C.INVALID_GROUP_ID: _V.FATAL,
        _C.UNSUPPORTED_VERSION: _V.FATAL,
        _C.GROUP_MAX_SIZE_REACHED: _V.LATER,
        _C.GROUP_AUTHORIZATION_FAILED: _V.LATER,
        _C.UNRELEASED_INSTANCE_ID: _V.LATER,
    },
    Api.SYNC: {
        **_ENDED,
        # Another coordinator knows what is in the log: not an incomplete generation.
        _C.COORDINATOR_LOAD_IN_PROGRESS: _V.REJOIN,
        _C.COORDINATOR_NOT_AVAILABLE: _V.REJOIN,
        _C.NOT_COORDINATOR: _V.REJOIN,
        _C.UNKNOWN_SERVER_ERROR: _V.REJOIN,
        _C.INCONSISTENT_GROUP_PROTOCOL: _V.FATAL,
        _C.GROUP_AUTHORIZATION_FAILED: _V.LATER,
    },
    Api.HEARTBEAT: {
        **_COORDINATOR,
        **_ENDED,
        _C.UNKNOWN_SERVER_ERROR: _V.RETRY,
        # Nothing is lost before the session is over; then the join reports more.
        _C.GROUP_AUTHORIZATION_FAILED: _V.RETRY,
    },
    Api.LEAVE: {
        **_COORDINATOR,
        _C.UNKNOWN_MEMBER_ID: _V.DONE,
        _C.FENCED_INSTANCE_ID: _V.DONE,
        _C.GROUP_ID_NOT_FOUND: _V.DONE,
    },
    Api.COMMIT: {**_ENDED},
}
"""Codes that are missing: see ``action_for``."""

HINTS: Final[Mapping[int, str]] = {
    _C.INCONSISTENT_GROUP_PROTOCOL: (
        "all members of a group must share a protocol type, and a protocol or assignor: compare "
        "partition_assignment_strategy, or the protocol's name, with that of the other members"
    ),
    _C.INVALID_SESSION_TIMEOUT: (
        "set session_timeout within group.min.session.timeout.ms and "
        "group.max.session.timeout.ms of the brokers"
    ),
    _C.INVALID_GROUP_ID: "give the group a name that isn't empty",
}
STATIC_HINTS: Final[Mapping[int, str]] = {
    _C.UNSUPPORTED_VERSION: "group_instance_id needs brokers from 2.3 on"
}
"""Hints for static members only."""


def action_for(api: Api, code: int) -> ErrorAction:
    """The action after ``code`` (not 0) in the response of ``api``.

    Of unexpected codes, retriable ones are retried; for a heartbeat, a commit or a leave the others
    change nothing, for a join or sync they may pass.
    """
    found = ERROR_ACTIONS[api].get(code)
    if found is not None:
        return found
    info = TABLE.get(code)
    if info is not None and info.retriable:
        return _V.REJOIN if api is Api.SYNC else _V.KEEP if api is Api.COMMIT else _V.RETRY
    if api is Api.HEARTBEAT:
        return _V.RETRY
    return {Api.COMMIT: _V.KEEP, Api.LEAVE: _V.DONE}.get(api, _V.LATER)
