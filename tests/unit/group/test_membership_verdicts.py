"""What each code of each response means for a member: the whole table, and the error texts."""

from __future__ import annotations

import pytest

from kclient.error_codes import TABLE, ErrorCode
from kclient.errors import BrokerError
from kclient.group.error_actions import ERROR_ACTIONS, Api, ErrorAction, action_for
from kclient.group.group_requests import GroupRequests

C, V = ErrorCode, ErrorAction
COORDINATOR_CODES = (
    C.COORDINATOR_LOAD_IN_PROGRESS,
    C.COORDINATOR_NOT_AVAILABLE,
    C.NOT_COORDINATOR,
)
EXPECTED = {
    Api.FIND: {
        C.COORDINATOR_LOAD_IN_PROGRESS: V.RETRY,
        C.COORDINATOR_NOT_AVAILABLE: V.RETRY,
        C.NOT_COORDINATOR: V.RETRY,
        C.UNKNOWN_SERVER_ERROR: V.RETRY,
        C.GROUP_AUTHORIZATION_FAILED: V.LATER,
        C.INVALID_GROUP_ID: V.FATAL,
        C.UNSUPPORTED_VERSION: V.FATAL,
    },
    Api.JOIN: {
        C.COORDINATOR_LOAD_IN_PROGRESS: V.RETRY,
        C.COORDINATOR_NOT_AVAILABLE: V.ELSEWHERE,
        C.NOT_COORDINATOR: V.ELSEWHERE,
        C.MEMBER_ID_REQUIRED: V.TAKE_ID,
        C.UNKNOWN_MEMBER_ID: V.FORGET,
        C.ILLEGAL_GENERATION: V.OVER,
        C.REBALANCE_IN_PROGRESS: V.RETRY,
        C.UNKNOWN_SERVER_ERROR: V.RETRY,
        C.INCONSISTENT_GROUP_PROTOCOL: V.FATAL,
        C.INVALID_SESSION_TIMEOUT: V.FATAL,
        C.INVALID_GROUP_ID: V.FATAL,
        C.GROUP_MAX_SIZE_REACHED: V.LATER,
        C.GROUP_AUTHORIZATION_FAILED: V.LATER,
        C.FENCED_INSTANCE_ID: V.FATAL,
        C.UNRELEASED_INSTANCE_ID: V.LATER,
        C.UNSUPPORTED_VERSION: V.FATAL,
    },
    Api.SYNC: {
        C.COORDINATOR_LOAD_IN_PROGRESS: V.REJOIN,
        C.COORDINATOR_NOT_AVAILABLE: V.REJOIN,
        C.NOT_COORDINATOR: V.REJOIN,
        C.REBALANCE_IN_PROGRESS: V.REJOIN,
        C.UNKNOWN_SERVER_ERROR: V.REJOIN,
        C.UNKNOWN_MEMBER_ID: V.FORGET,
        C.ILLEGAL_GENERATION: V.OVER,
        C.FENCED_INSTANCE_ID: V.FATAL,
        C.INCONSISTENT_GROUP_PROTOCOL: V.FATAL,
        C.GROUP_AUTHORIZATION_FAILED: V.LATER,
    },
    Api.HEARTBEAT: {
        C.COORDINATOR_LOAD_IN_PROGRESS: V.RETRY,
        C.COORDINATOR_NOT_AVAILABLE: V.ELSEWHERE,
        C.NOT_COORDINATOR: V.ELSEWHERE,
        C.REBALANCE_IN_PROGRESS: V.REJOIN,
        C.UNKNOWN_SERVER_ERROR: V.RETRY,
        C.UNKNOWN_MEMBER_ID: V.FORGET,
        C.ILLEGAL_GENERATION: V.OVER,
        C.FENCED_INSTANCE_ID: V.FATAL,
        C.GROUP_AUTHORIZATION_FAILED: V.RETRY,
    },
    Api.LEAVE: {
        C.COORDINATOR_LOAD_IN_PROGRESS: V.RETRY,
        C.COORDINATOR_NOT_AVAILABLE: V.ELSEWHERE,
        C.NOT_COORDINATOR: V.ELSEWHERE,
        C.UNKNOWN_MEMBER_ID: V.DONE,
        C.FENCED_INSTANCE_ID: V.DONE,
        C.GROUP_ID_NOT_FOUND: V.DONE,
        C.GROUP_AUTHORIZATION_FAILED: V.DONE,
    },
    Api.COMMIT: {
        C.REBALANCE_IN_PROGRESS: V.REJOIN,
        C.UNKNOWN_MEMBER_ID: V.FORGET,
        C.ILLEGAL_GENERATION: V.OVER,
        C.FENCED_INSTANCE_ID: V.FATAL,
        C.OFFSET_METADATA_TOO_LARGE: V.KEEP,
        C.NOT_COORDINATOR: V.KEEP,
    },
}
ROWS = [(api, code, action) for api, row in EXPECTED.items() for code, action in row.items()]


@pytest.mark.parametrize(("api", "code", "action"), ROWS)
def test_the_verdict_on(api: Api, code: ErrorCode, action: ErrorAction) -> None:
    assert action_for(api, code) is action


def test_each_row_of_the_table_is_expected() -> None:
    assert {(api, int(code)) for api, row in ERROR_ACTIONS.items() for code in row} <= {
        (api, int(code)) for api, code, _ in ROWS
    }


@pytest.mark.parametrize("api", Api)
def test_an_unexpected_code_is_handled_by_its_retriable_flag(api: Api) -> None:
    for code, info in TABLE.items():
        if not code or code in ERROR_ACTIONS[api]:
            continue
        action = action_for(api, code)
        if info.retriable:
            assert action in (V.RETRY, V.REJOIN, V.KEEP)
        elif api in (Api.FIND, Api.JOIN, Api.SYNC):
            assert action is V.LATER
        else:
            assert action in (V.RETRY, V.KEEP, V.DONE)


@pytest.mark.parametrize("api", Api)
def test_a_code_of_the_future_has_a_verdict_too(api: Api) -> None:
    assert action_for(api, 9_999) in ErrorAction
    assert isinstance(requests().refusal(api, 9_999, 1), BrokerError)


def requests(instance_id: str | None = None) -> GroupRequests:
    return GroupRequests("orders", instance_id, 45_000, 300_000, "consumer")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (C.INCONSISTENT_GROUP_PROTOCOL, "partition_assignment_strategy"),
        (C.INVALID_SESSION_TIMEOUT, "session_timeout"),
        (C.GROUP_MAX_SIZE_REACHED, "group.max.size"),
        (C.GROUP_AUTHORIZATION_FAILED, "READ on the group"),
        (C.FENCED_INSTANCE_ID, "give each running member its own"),
        (C.INVALID_GROUP_ID, "give the group a name"),
    ],
)
def test_a_fatal_refusal_names_the_group_the_member_and_the_remedy(
    code: ErrorCode, words: str
) -> None:
    error = requests("pod-7").refusal(Api.JOIN, code, 3)
    assert "JoinGroup of group orders as group_instance_id pod-7 failed" in str(error)
    assert words in str(error)
    assert error.node_id == 3


def test_only_static_members_get_the_hint_what_they_need() -> None:
    named = requests("pod-7").refusal(Api.JOIN, C.UNSUPPORTED_VERSION, 3)
    assert "group_instance_id needs brokers from 2.3 on" in str(named)
    unnamed = requests().refusal(Api.JOIN, C.UNSUPPORTED_VERSION, 3)
    assert "group_instance_id" not in str(unnamed)
