"""Requests about committed offsets in every version, and how their responses are read."""

from __future__ import annotations

import pytest

from kclient.broker_errors import (
    GroupAuthorizationFailed,
    IllegalGeneration,
    OffsetMetadataTooLarge,
    UnstableOffsetCommit,
)
from kclient.cluster.offset_requests import OffsetCommit, OffsetFetch
from kclient.cluster.topic import Partition
from kclient.cluster.view import Cluster
from kclient.error_codes import ErrorCode
from kclient.errors import (
    NoCommonVersion,
    ProtocolError,
)
from kclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kclient.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from tests.support.views import topic_of, view_of

T_ID, U_ID = b"t" * 16, b"u" * 16
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
MEMBER = GroupMetadata("g", 7, "member-1", "instance-1")
OFFSETS = {
    T0: OffsetAndMetadata(10, 3, "note"),
    U0: OffsetAndMetadata(20),
    T1: OffsetAndMetadata(30),
}


def view(**ids: bytes) -> Cluster:
    """A view that knows topics and their ids."""
    partitions = [Partition("?", 0, 1)]
    return view_of(topics=[topic_of(name, partitions, topic_id=one) for name, one in ids.items()])


KNOWN = view(t=T_ID, u=U_ID)
NAMES = {T_ID: "t", U_ID: "u"}


def order(member: GroupMetadata = MEMBER, known: Cluster = KNOWN) -> OffsetCommit:
    return OffsetCommit(member, OFFSETS, known)


@pytest.mark.parametrize("version", range(1, OffsetCommitRequest.MAX_VERSION + 1))
def test_a_commit_has_in_every_version_all_that_the_version_can(version: int) -> None:
    sent = OffsetCommitRequest.decode(order().build(version).encode(version), version)
    assert (sent.group_id, sent.generation_id_or_member_epoch) == ("g", 7)
    assert sent.member_id == "member-1"
    assert sent.group_instance_id == ("instance-1" if version >= 7 else None)
    assert sent.retention_time_ms == -1  # the brokers' own
    rows = {
        (topic.name or NAMES[topic.topic_id], one.partition_index): (
            one.committed_offset,
            one.committed_leader_epoch,
            one.committed_metadata,
        )
        for topic in sent.topics
        for one in topic.partitions
    }
    assert rows == {
        ("t", 0): (10, 3 if version >= 6 else -1, "note"),
        ("u", 0): (20, -1, ""),
        ("t", 1): (30, -1, ""),
    }
    assert all(bool(topic.name) is (version < 10) for topic in sent.topics)


def test_a_commit_without_membership_has_no_member_id() -> None:
    sent = order(GroupMetadata("g")).build(10)
    assert (sent.generation_id_or_member_epoch, sent.member_id) == (-1, "")
    assert sent.group_instance_id is None


def test_offsets_are_never_kept_in_zookeeper() -> None:
    with pytest.raises(NoCommonVersion, match="ZooKeeper"):
        order().build(0)
    with pytest.raises(NoCommonVersion, match="ZooKeeper"):
        OffsetFetch("g", OFFSETS, KNOWN).build(0)


def test_topics_are_named_where_the_id_of_one_is_not_known() -> None:
    assert order().max_version is None
    half = view(t=T_ID)
    assert order(known=half).max_version == 9
    with pytest.raises(NoCommonVersion, match="ids of topics"):
        order(known=half).build(10)
    assert order(known=half).build(9).topics[0].name == "t"
    assert OffsetFetch("g", OFFSETS, half).max_version == 9
    assert OffsetFetch("g", OFFSETS, KNOWN).max_version is None
    assert OffsetFetch("g", OFFSETS, view(t=T_ID, u=bytes(16))).max_version


def committed(version: int, **codes: int) -> OffsetCommitResponse:
    """A response with a code for each of ``t0``, ``t1``, ``u0``."""
    ids = {"t": T_ID, "u": U_ID}
    topics = [
        OffsetCommitResponseTopic(
            name=key[0] if version < 10 else "",
            topic_id=ids[key[0]] if version >= 10 else bytes(16),
            partitions=[OffsetCommitResponsePartition(int(key[1]), code)],
        )
        for key, code in codes.items()
    ]
    answer = OffsetCommitResponse(topics=topics)
    return OffsetCommitResponse.decode(answer.encode(version), version)


@pytest.mark.parametrize("version", range(1, OffsetCommitRequest.MAX_VERSION + 1))
def test_each_partition_of_a_commit_has_its_own_outcome(version: int) -> None:
    said = order().read(committed(version, t0=0, t1=ErrorCode.OFFSET_METADATA_TOO_LARGE, u0=0))
    assert list(said) == [T0, U0, T1]
    assert said[T0] is said[U0] is None
    refused = said[T1]
    assert isinstance(refused, OffsetMetadataTooLarge)
    assert refused.topic_partition == T1
    assert "offset 30 of t-1 by group g" in str(refused)


@pytest.mark.parametrize("version", [9, 10])
def test_a_partition_that_the_response_leaves_out_is_not_taken_for_committed(version: int) -> None:
    said = order().read(committed(version, t0=0))
    assert said[T0] is None
    for key in (T1, U0):
        error = said[key]
        assert isinstance(error, ProtocolError)
        assert error.topic_partition == key


def test_a_response_about_what_was_not_requested_changes_nothing() -> None:
    stranger = OffsetCommitResponseTopic(
        topic_id=b"x" * 16, partitions=[OffsetCommitResponsePartition(0, 22)]
    )
    answer = committed(10, t0=0, t1=0, u0=0, t9=22)
    answer.topics.append(stranger)
    assert order().read(answer) == {T0: None, U0: None, T1: None}


def test_of_two_results_for_one_partition_the_error_counts() -> None:
    answer = committed(10, t0=22, t1=0, u0=0)
    answer.topics += committed(10, t0=0, t1=22).topics
    said = order().read(answer)
    assert isinstance(said[T0], IllegalGeneration)
    assert isinstance(said[T1], IllegalGeneration)


# OffsetFetch


def question() -> OffsetFetch:
    return OffsetFetch("g", [T0, U0, T1], KNOWN)


@pytest.mark.parametrize("version", range(1, OffsetFetchRequest.MAX_VERSION + 1))
def test_a_fetch_asks_in_every_version_for_these_partitions(version: int) -> None:
    request = question().build(version)
    sent = OffsetFetchRequest.decode(request.encode(version), version)
    assert sent.require_stable is (version >= 7)
    if version < 8:
        assert sent.group_id == "g"
        assert [(one.name, one.partition_indexes) for one in sent.topics or ()] == [
            ("t", [0, 1]),
            ("u", [0]),
        ]
        return
    [group] = sent.groups
    assert (group.group_id, group.member_id, group.member_epoch) == ("g", None, -1)
    asked = [(one.name or NAMES[one.topic_id], one.partition_indexes) for one in group.topics or ()]
    assert asked == [("t", [0, 1]), ("u", [0])]
    assert all(bool(one.name) is (version < 10) for one in group.topics or ())


def fetched(
    version: int, *, error: int = 0, group_id: str = "g", **rows: tuple[int, int, str | None, int]
) -> OffsetFetchResponse:
    """A response with (offset, epoch, metadata, code) of each of ``t0``, ``t1``, ``u0``."""
    ids = {"t": T_ID, "u": U_ID}
    answer = OffsetFetchResponse()
    if version < 8:
        answer.error_code = error
        answer.topics = [
            OffsetFetchResponseTopic(key[0], [OffsetFetchResponsePartition(int(key[1]), *row)])
            for key, row in rows.items()
        ]
    else:
        topics = [
            OffsetFetchResponseTopics(
                name=key[0] if version < 10 else "",
                topic_id=ids[key[0]] if version >= 10 else bytes(16),
                partitions=[OffsetFetchResponsePartitions(int(key[1]), *row)],
            )
            for key, row in rows.items()
        ]
        answer.groups = [OffsetFetchResponseGroup(group_id, topics, error)]
    return OffsetFetchResponse.decode(answer.encode(version), version)


@pytest.mark.parametrize("version", range(1, OffsetFetchRequest.MAX_VERSION + 1))
def test_a_response_distinguishes_offsets_none_and_errors(version: int) -> None:
    said = question().read(
        fetched(
            version,
            t0=(10, 4, "note", 0),
            t1=(-1, -1, "", 0),
            u0=(-1, -1, None if version >= 8 else "", ErrorCode.UNSTABLE_OFFSET_COMMIT),
        )
    )
    assert list(said) == [T0, U0, T1]
    assert said[T0] == OffsetAndMetadata(10, 4 if version >= 5 else None, "note")
    assert said[T1] is None
    unstable = said[U0]
    assert isinstance(unstable, UnstableOffsetCommit)
    assert unstable.topic_partition == U0


@pytest.mark.parametrize("version", [2, 7, 8, 10])
def test_an_error_of_the_group_is_that_of_each_partition(version: int) -> None:
    said = question().read(fetched(version, error=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    assert {type(one) for one in said.values()} == {GroupAuthorizationFailed}
    assert list(said) == [T0, U0, T1]


@pytest.mark.parametrize("version", [1, 7, 8, 10])
def test_a_partition_that_the_response_leaves_out_is_an_error(version: int) -> None:
    said = question().read(fetched(version, t0=(10, -1, "", 0)))
    assert said[T0] == OffsetAndMetadata(10)
    for key in (T1, U0):
        error = said[key]
        assert isinstance(error, ProtocolError)
        assert error.topic_partition == key


def test_a_response_about_another_group_counts_for_nothing() -> None:
    said = question().read(fetched(10, group_id="h", t0=(10, -1, "", 0)))
    assert {type(one) for one in said.values()} == {ProtocolError}


@pytest.mark.parametrize("version", [7, 9])
def test_an_offset_that_another_client_made_up_is_none(version: int) -> None:
    said = question().read(fetched(version, t0=(-1001, -1, "", 0), t1=(5, -1, None, 0)))
    assert said[T0] is None  # as Java has it; brokers keep any number
    assert said[T1] == OffsetAndMetadata(5, None, "")
