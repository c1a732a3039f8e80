"""The requests of a member in each version, and what is read from their responses."""

from __future__ import annotations

from typing import Any

import pytest

from kclient.errors import NoCommonVersion
from kclient.group.group_requests import GroupRequests
from kclient.group.member import Generation, JoinedMember, MemberProtocol
from kclient.protocol.messages.heartbeat import HeartbeatRequest
from kclient.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from kclient.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from kclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

DYNAMIC = GroupRequests("g", None, 45_000, 60_000, "work")
STATIC = GroupRequests("g", "pod-7", 45_000, 60_000, "work")
OFFERS = [MemberProtocol("even", b"mine"), MemberProtocol("odd", b"")]
ME = Generation(5, "m", "pod-7", "even", True)


def again(message: Any, version: int) -> Any:
    """As the broker reads it."""
    return type(message).decode(message.encode(version), version)


@pytest.mark.parametrize("version", range(10))
def test_a_dynamic_member_joins_in_every_version(version: int) -> None:
    read = again(DYNAMIC.join("m", OFFERS, "x" * 300, version), version)
    assert isinstance(read, JoinGroupRequest)
    assert (read.group_id, read.member_id, read.protocol_type) == ("g", "m", "work")
    assert [(p.name, p.metadata) for p in read.protocols] == [("even", b"mine"), ("odd", b"")]
    assert read.session_timeout_ms == 45_000
    assert read.rebalance_timeout_ms == (60_000 if version >= 1 else -1)
    assert read.reason == ("x" * 255 if version >= 8 else None)


@pytest.mark.parametrize("version", range(10))
def test_a_static_member_joins_where_brokers_know_such_members(version: int) -> None:
    if version < 5:
        with pytest.raises(NoCommonVersion, match=r"group_instance_id='pod-7'.*from 2\.3 on"):
            STATIC.join("", OFFERS, "", version)
    else:
        assert again(STATIC.join("", OFFERS, "", version), version).group_instance_id == "pod-7"


@pytest.mark.parametrize("version", range(6))
def test_sync_in_every_version(version: int) -> None:
    requests = STATIC if version >= 3 else DYNAMIC
    read = again(requests.sync(ME, {"m": b"a", "n": b"b"}), version)
    assert isinstance(read, SyncGroupRequest)
    assert (read.generation_id, read.member_id) == (5, "m")
    assert {a.member_id: a.assignment for a in read.assignments} == {"m": b"a", "n": b"b"}
    if version >= 5:
        assert (read.protocol_type, read.protocol_name) == ("work", "even")


@pytest.mark.parametrize("version", range(5))
def test_heartbeat_in_every_version(version: int) -> None:
    requests = STATIC if version >= 3 else DYNAMIC
    read = again(requests.heartbeat(ME), version)
    assert isinstance(read, HeartbeatRequest)
    assert (read.generation_id, read.member_id) == (5, "m")
    assert read.group_instance_id == ("pod-7" if version >= 3 else None)


@pytest.mark.parametrize("version", range(6))
def test_leave_in_every_version(version: int) -> None:
    requests = STATIC if version >= 3 else DYNAMIC
    read = again(requests.leave("m", "y" * 300, version), version)
    assert isinstance(read, LeaveGroupRequest)
    if version < 3:
        assert read.member_id == "m"
        return
    (one,) = read.members
    assert (one.member_id, one.group_instance_id) == ("m", "pod-7")
    assert one.reason == ("y" * 255 if version >= 5 else None)


def test_a_join_response_is_read() -> None:
    answer = JoinGroupResponse(
        generation_id=5,
        protocol_name="even",
        leader="m",
        member_id="m",
        members=[JoinGroupResponseMember("m", "pod-7", b"mine")],
    )
    assert STATIC.generation(answer) == ME
    assert STATIC.members(answer) == [JoinedMember("m", "pod-7", b"mine")]
    answer.leader = "n"
    assert not STATIC.generation(answer).is_leader


@pytest.mark.parametrize(
    ("said", "agrees"), [(None, True), ("", True), ("work", True), ("x", False)]
)
def test_the_protocol_type_is_compared_where_the_broker_reports_it(said: Any, agrees: bool) -> None:
    assert DYNAMIC.agrees(JoinGroupResponse(protocol_type=said)) is agrees
    assert DYNAMIC.agrees(SyncGroupResponse(protocol_type=said), ME) is agrees


def test_the_protocol_is_compared_where_the_broker_reports_it() -> None:
    assert DYNAMIC.agrees(SyncGroupResponse(protocol_name="even"), ME)
    assert not DYNAMIC.agrees(SyncGroupResponse(protocol_name="odd"), ME)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, None),
        ({"protocol_name": "odd"}, "protocol 'odd', while even, thirds was offered"),
        ({"protocol_name": None}, "protocol None"),
        ({"generation_id": -1}, "of generation -1"),
        ({"member_id": ""}, "member ''"),
    ],
)
def test_a_generation_that_can_not_be_is_named(changes: dict[str, Any], text: str | None) -> None:
    reported = {"protocol_name": "even", "generation_id": 1, "member_id": "m", **changes}
    found = DYNAMIC.nonsense(JoinGroupResponse(**reported), {"thirds", "even"})
    assert found is None if text is None else text in str(found)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (LeaveGroupResponse(), 0),
        (LeaveGroupResponse(error_code=16), 16),
        (LeaveGroupResponse(error_code=25), 0),
        (LeaveGroupResponse(members=[MemberResponse("m", None, 25)]), 0),
        (LeaveGroupResponse(members=[MemberResponse("m", None, 14)]), 14),
        (LeaveGroupResponse(members=[MemberResponse("m", None, 30)]), 0),
    ],
)
def test_a_leave_is_repeated_only_where_that_may_help(answer: Any, code: int) -> None:
    assert DYNAMIC.leave_error(answer) == code
