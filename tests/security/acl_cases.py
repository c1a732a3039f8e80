"""For each API of the embedded cluster, the ACLs that its requests need, and requests.

A case is played without any ACL, and then with one more at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kclient.protocol.message import Request
from kclient.protocol.messages import alter_configs, incremental_alter_configs, produce
from kclient.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kclient.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from kclient.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from kclient.protocol.messages.create_acls import AclCreation
from kclient.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from kclient.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kclient.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kclient.protocol.messages.delete_groups import DeleteGroupsRequest
from kclient.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kclient.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kclient.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from kclient.protocol.messages.describe_cluster import DescribeClusterRequest
from kclient.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from kclient.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from kclient.protocol.messages.describe_groups import DescribeGroupsRequest
from kclient.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from kclient.protocol.messages.describe_producers import DescribeProducersRequest
from kclient.protocol.messages.describe_producers import TopicRequest as ProducersOfTopic
from kclient.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from kclient.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kclient.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from kclient.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kclient.protocol.messages.end_txn import EndTxnRequest
from kclient.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kclient.protocol.messages.fetch import FetchRequest
from kclient.protocol.messages.init_producer_id import InitProducerIdRequest
from kclient.protocol.messages.list_config_resources import ListConfigResourcesRequest
from kclient.protocol.messages.list_groups import ListGroupsRequest
from kclient.protocol.messages.list_transactions import ListTransactionsRequest
from kclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kclient.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kclient.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from kclient.protocol.primitives import ZERO_UUID
from kclient.testing.authorizer import CLUSTER_NAME, PatternType, ResourceType
from kclient.testing.authorizer import AclOperation as Op
from tests.security.acl_sides import DOOMED, GROUP, ID, OWN, TOPIC, Ids
from tests.unit.testing import acl_calls, group_calls, transaction_calls
from tests.unit.testing.acl_calls import acl
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import fetch, list_offsets
from tests.unit.testing.calls import produce as produced

UNKNOWN = f"{OWN}unknown"
UNKNOWN_ID = bytes(range(1, 17))
_BROKER, _GROUPS, _METRICS = 4, 32, 16
_PRODUCER = (4242, 0)

Make = Callable[[Ids], Request]


@dataclass(frozen=True, slots=True)
class Case:
    """A request, its version, and the ACLs that are created one after the other.

    Attributes:
        listing: The request is for all that there is.
    """

    make: Make
    version: int
    acls: tuple[AclCreation, ...]
    listing: bool = False


def topic(operation: Op, name: str = TOPIC) -> AclCreation:
    return acl(name, operation)


def group(operation: Op) -> AclCreation:
    return acl(GROUP, operation, ResourceType.GROUP)


def cluster(operation: Op) -> AclCreation:
    return acl(CLUSTER_NAME, operation, ResourceType.CLUSTER)


def transactional_id(operation: Op) -> AclCreation:
    return acl(ID, operation, ResourceType.TRANSACTIONAL_ID)


def _metadata(*names: str, topic_id: bytes = ZERO_UUID, create: bool = False) -> MetadataRequest:
    """Topics by name, or one by id, and an unknown one; or all of them."""
    wanted = [MetadataRequestTopic(ZERO_UUID, one) for one in names]
    if topic_id != ZERO_UUID:
        wanted = [MetadataRequestTopic(topic_id, None), MetadataRequestTopic(UNKNOWN_ID, None)]
    return MetadataRequest(
        wanted or None,
        create,
        include_cluster_authorized_operations=not wanted,
        include_topic_authorized_operations=True,
    )


def _transactional() -> produce.ProduceRequest:
    request = produced(TOPIC, batch_bytes(producer=(*_PRODUCER, 0), transactional=True))
    request.transactional_id = ID
    return request


def _as_follower() -> FetchRequest:
    request = fetch(UNKNOWN, 0)
    request.replica_id = 1
    return request


def _create(*names: str) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic(one, 1, 1) for one in names], 9000, True)


def _delete(*topics: str | bytes) -> DeleteTopicsRequest:
    states = [
        DeleteTopicState(one) if isinstance(one, str) else DeleteTopicState(None, one)
        for one in topics
    ]
    return DeleteTopicsRequest(states, [], 9000)


def _epochs() -> OffsetForLeaderEpochRequest:
    partition = OffsetForLeaderPartition(0, -1, 0)
    return OffsetForLeaderEpochRequest(
        -1, [OffsetForLeaderTopic(one, [partition]) for one in (TOPIC, UNKNOWN)]
    )


def _altered() -> alter_configs.AlterConfigsRequest:
    kinds = ((2, TOPIC), (2, UNKNOWN), (_BROKER, ""), (_METRICS, "m"))
    return alter_configs.AlterConfigsRequest(
        [alter_configs.AlterConfigsResource(*one) for one in kinds], True
    )


def _altered_incrementally() -> incremental_alter_configs.IncrementalAlterConfigsRequest:
    kinds = ((2, TOPIC), (_BROKER, ""), (_GROUPS, GROUP), (_METRICS, "m"))
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        [incremental_alter_configs.AlterConfigsResource(*one) for one in kinds], True
    )


def _described_configs() -> DescribeConfigsRequest:
    kinds = ((2, TOPIC), (2, UNKNOWN), (_BROKER, "1"), (_GROUPS, GROUP), (_METRICS, "m"))
    return DescribeConfigsRequest([DescribeConfigsResource(*one, ["none"]) for one in kinds])


def _many_partitions() -> CreatePartitionsRequest:
    return CreatePartitionsRequest(
        [CreatePartitionsTopic(one, 3, None) for one in (TOPIC, UNKNOWN)], 9000, True
    )


def _deleted_records() -> DeleteRecordsRequest:
    part = DeleteRecordsPartition(0, 0)
    topics = [DeleteRecordsTopic(one, [part]) for one in (TOPIC, UNKNOWN)]
    return DeleteRecordsRequest(topics, 9000)


_CONFIGS = (topic(Op.ALTER_CONFIGS), cluster(Op.ALTER_CONFIGS), group(Op.ALTER_CONFIGS))
_SHOWN_CONFIGS = (topic(Op.DESCRIBE_CONFIGS), cluster(Op.DESCRIBE_CONFIGS), group(Op.ALTER_CONFIGS))
_CHECKED = (transactional_id(Op.WRITE), group(Op.READ), topic(Op.READ))

CASES: dict[str, Case] = {
    "produce": Case(lambda _: produced(TOPIC, batch_bytes()), 9, (topic(Op.WRITE),)),
    "produce, by id": Case(lambda ids: produced(ids.topic, batch_bytes()), 13, (topic(Op.WRITE),)),
    "produce, to an unknown topic": Case(
        lambda _: produced(UNKNOWN, batch_bytes()), 9, (topic(Op.WRITE, UNKNOWN),)
    ),
    "produce, without acks": Case(lambda _: produced(TOPIC, batch_bytes(), acks=0), 9, ()),
    "produce, in a transaction": Case(
        lambda _: _transactional(), 11, (transactional_id(Op.WRITE), topic(Op.WRITE))
    ),
    "fetch": Case(lambda _: fetch(TOPIC, 0), 12, (topic(Op.READ),)),
    "fetch, by id": Case(lambda ids: fetch(ids.topic, 0), 13, (topic(Op.READ),)),
    "fetch, by an unknown id": Case(lambda _: fetch(UNKNOWN_ID, 0), 13, ()),
    "fetch, of an unknown topic": Case(lambda _: fetch(UNKNOWN, 0), 12, (topic(Op.READ, UNKNOWN),)),
    "fetch, as a follower": Case(
        lambda _: _as_follower(), 12, (topic(Op.READ, UNKNOWN), cluster(Op.CLUSTER_ACTION))
    ),
    "offsets": Case(lambda _: list_offsets(TOPIC, -1), 8, (topic(Op.DESCRIBE),)),
    "offsets, of an unknown topic": Case(
        lambda _: list_offsets(UNKNOWN, -1), 8, (topic(Op.DESCRIBE, UNKNOWN),)
    ),
    "metadata": Case(
        lambda _: _metadata(TOPIC, UNKNOWN),
        12,
        (topic(Op.DESCRIBE), topic(Op.READ, UNKNOWN), topic(Op.ALTER_CONFIGS)),
    ),
    "metadata, by id": Case(
        lambda ids: _metadata(topic_id=ids.topic), 12, (topic(Op.DESCRIBE_CONFIGS), topic(Op.WRITE))
    ),
    "metadata, of a topic to create": Case(
        lambda _: _metadata(f"{OWN}new-1", create=True),
        9,
        (topic(Op.DESCRIBE, f"{OWN}new-1"), topic(Op.CREATE, f"{OWN}new-1")),
    ),
    "metadata, of another topic to create": Case(
        lambda _: _metadata(f"{OWN}new-2", create=True),
        9,
        (topic(Op.DESCRIBE, f"{OWN}new-2"), cluster(Op.CREATE)),
    ),
    "metadata, of all topics": Case(
        lambda _: _metadata(),
        10,
        (topic(Op.DESCRIBE), cluster(Op.DESCRIBE)),
        listing=True,
    ),
    "commit": Case(
        lambda _: group_calls.commit(GROUP, TOPIC, (0, 0), (7, 0)),
        7,
        (group(Op.READ), topic(Op.READ)),
    ),
    "commit, by id": Case(
        lambda ids: group_calls.commit(GROUP, ids.topic, (0, 0)),
        10,
        (group(Op.READ), topic(Op.READ)),
    ),
    "commit, of an unknown topic": Case(
        lambda _: group_calls.commit(GROUP, UNKNOWN, (0, 0)),
        7,
        (group(Op.READ), topic(Op.READ, UNKNOWN)),
    ),
    "committed offsets": Case(
        lambda _: group_calls.fetch_offsets(GROUP, TOPIC, 0),
        8,
        (group(Op.DESCRIBE), topic(Op.DESCRIBE)),
    ),
    "committed offsets, by id": Case(
        lambda ids: group_calls.fetch_offsets(GROUP, ids.topic, 0),
        10,
        (group(Op.DESCRIBE), topic(Op.DESCRIBE)),
    ),
    "all committed offsets": Case(
        lambda _: group_calls.fetch_offsets(GROUP), 8, (group(Op.DESCRIBE), topic(Op.DESCRIBE))
    ),
    "coordinator of a group": Case(lambda _: group_calls.find(GROUP), 6, (group(Op.DESCRIBE),)),
    "coordinator of a group, in an old version": Case(
        lambda _: group_calls.find(GROUP, 3), 3, (group(Op.READ),)
    ),
    "coordinator of a transactional id": Case(
        lambda _: group_calls.find(ID, kind=1), 6, (transactional_id(Op.DESCRIBE),)
    ),
    "join": Case(lambda _: group_calls.join(GROUP), 9, (group(Op.READ),)),
    "join, without a name": Case(lambda _: group_calls.join(""), 9, ()),
    "sync": Case(lambda _: group_calls.sync(GROUP, 1, "m"), 5, (group(Op.READ),)),
    "heartbeat": Case(lambda _: group_calls.beat(GROUP, 1, "m"), 4, (group(Op.READ),)),
    "leave": Case(lambda _: group_calls.leave(GROUP, "m"), 5, (group(Op.READ),)),
    "groups": Case(
        lambda _: DescribeGroupsRequest([GROUP], True),
        6,
        (group(Op.DESCRIBE), group(Op.DELETE), group(Op.ALL)),
    ),
    "all groups": Case(lambda _: ListGroupsRequest(), 5, (group(Op.DESCRIBE),), listing=True),
    "all groups, by the cluster": Case(
        lambda _: ListGroupsRequest(), 5, (cluster(Op.DESCRIBE),), listing=True
    ),
    "new topics": Case(
        lambda _: _create(TOPIC, UNKNOWN),
        7,
        (topic(Op.CREATE, UNKNOWN), topic(Op.DESCRIBE_CONFIGS, UNKNOWN), cluster(Op.CREATE)),
    ),
    "deletion of topics": Case(
        lambda _: _delete(DOOMED[0], UNKNOWN),
        6,
        (topic(Op.DESCRIBE, DOOMED[0]), topic(Op.READ, UNKNOWN), topic(Op.DELETE, DOOMED[0])),
    ),
    "deletion of topics, by id": Case(
        lambda ids: _delete(ids.doomed[1], UNKNOWN_ID),
        6,
        (topic(Op.DESCRIBE, DOOMED[1]), topic(Op.DELETE, DOOMED[1])),
    ),
    "deletion of topics, by the cluster": Case(
        lambda _: _delete(DOOMED[2], UNKNOWN), 6, (cluster(Op.DELETE),)
    ),
    "deletion of records": Case(lambda _: _deleted_records(), 2, (topic(Op.DELETE),)),
    "producer id": Case(lambda _: InitProducerIdRequest(None), 4, (cluster(Op.IDEMPOTENT_WRITE),)),
    "producer id, by any topic": Case(
        lambda _: InitProducerIdRequest(None), 4, (topic(Op.READ), topic(Op.WRITE))
    ),
    "producer id, in a transaction": Case(
        lambda _: InitProducerIdRequest(ID, 9000), 4, (transactional_id(Op.WRITE),)
    ),
    "producer id, that can not be": Case(lambda _: InitProducerIdRequest("", 9000), 4, ()),
    "epochs": Case(lambda _: _epochs(), 4, (topic(Op.DESCRIBE), cluster(Op.CLUSTER_ACTION))),
    "partitions of a transaction": Case(
        lambda _: transaction_calls.add_partitions(ID, _PRODUCER, (TOPIC, 0)),
        3,
        (transactional_id(Op.WRITE), topic(Op.WRITE)),
    ),
    "partitions of a transaction, by a broker": Case(
        lambda _: transaction_calls.add_partitions(ID, _PRODUCER, (TOPIC, 0), version=5),
        5,
        (transactional_id(Op.WRITE), cluster(Op.CLUSTER_ACTION)),
    ),
    "offsets of a transaction": Case(
        lambda _: AddOffsetsToTxnRequest(ID, *_PRODUCER, GROUP),
        3,
        (transactional_id(Op.WRITE), group(Op.READ)),
    ),
    "end of a transaction": Case(
        lambda _: EndTxnRequest(ID, *_PRODUCER, True), 3, (transactional_id(Op.WRITE),)
    ),
    "markers": Case(
        lambda _: transaction_calls.markers(_PRODUCER, (UNKNOWN, 0)), 1, (cluster(Op.ALTER),)
    ),
    "markers, by a broker": Case(
        lambda _: transaction_calls.markers(_PRODUCER, (UNKNOWN, 0)),
        1,
        (cluster(Op.CLUSTER_ACTION),),
    ),
    "commit in a transaction": Case(
        lambda _: transaction_calls.commit_offset(ID, _PRODUCER, GROUP, 1, topic=TOPIC),
        3,
        _CHECKED,
    ),
    "description of ACLs": Case(
        lambda _: acl_calls.describe(principal="User:zoe"), 3, (cluster(Op.DESCRIBE),)
    ),
    "new ACLs": Case(
        lambda _: acl_calls.create(acl(TOPIC, principal="User:zoe")), 3, (cluster(Op.ALTER),)
    ),
    "deletion of ACLs": Case(
        lambda _: acl_calls.delete(acl_calls.one_filter(principal="User:zoe")),
        3,
        (cluster(Op.DESCRIBE), cluster(Op.ALTER)),
    ),
    "configurations": Case(lambda _: _described_configs(), 4, _SHOWN_CONFIGS),
    "replaced configurations": Case(lambda _: _altered(), 2, _CONFIGS),
    "altered configurations": Case(lambda _: _altered_incrementally(), 1, _CONFIGS),
    "resources with configurations": Case(
        lambda _: ListConfigResourcesRequest([2]), 1, (cluster(Op.DESCRIBE_CONFIGS),), listing=True
    ),
    "log directories": Case(
        lambda _: DescribeLogDirsRequest([DescribableLogDirTopic(TOPIC, [0])]),
        4,
        (cluster(Op.DESCRIBE),),
    ),
    "more partitions": Case(lambda _: _many_partitions(), 3, (topic(Op.ALTER),)),
    "deletion of groups": Case(
        lambda _: DeleteGroupsRequest([UNKNOWN]), 2, (acl(UNKNOWN, Op.DELETE, ResourceType.GROUP),)
    ),
    "elections": Case(
        lambda _: ElectLeadersRequest(0, [TopicPartitions(TOPIC, [0])], 9000),
        2,
        (cluster(Op.ALTER),),
    ),
    "deletion of offsets": Case(
        lambda _: group_calls.delete_offsets(GROUP, TOPIC, 7), 0, (group(Op.DELETE), topic(Op.READ))
    ),
    "the cluster": Case(
        lambda _: DescribeClusterRequest(True),
        1,
        (cluster(Op.CREATE), cluster(Op.ALTER), cluster(Op.ALL)),
    ),
    "producers": Case(
        lambda _: DescribeProducersRequest(
            [ProducersOfTopic(one, [0]) for one in (TOPIC, UNKNOWN)]
        ),
        0,
        (topic(Op.READ),),
    ),
    "transactions": Case(
        lambda _: DescribeTransactionsRequest([ID, UNKNOWN]), 0, (transactional_id(Op.DESCRIBE),)
    ),
    "all transactions": Case(
        lambda _: ListTransactionsRequest(), 1, (transactional_id(Op.DESCRIBE),), listing=True
    ),
    "partitions": Case(
        lambda _: DescribeTopicPartitionsRequest([TopicRequest(one) for one in (TOPIC, UNKNOWN)]),
        0,
        (topic(Op.DESCRIBE), topic(Op.DELETE, UNKNOWN)),
    ),
    "all partitions": Case(
        lambda _: DescribeTopicPartitionsRequest(), 0, (topic(Op.DESCRIBE),), listing=True
    ),
    "quotas, described": Case(
        lambda _: DescribeClientQuotasRequest([ComponentData("user", 0, "nobody")], True),
        1,
        (cluster(Op.DESCRIBE_CONFIGS),),
    ),
    "quotas, altered": Case(
        lambda _: AlterClientQuotasRequest(
            [
                RequestEntryData(
                    [RequestEntityData("user", "nobody")],
                    [OpData("producer_byte_rate", remove=True)],
                )
            ]
        ),
        1,
        (cluster(Op.ALTER_CONFIGS),),
    ),
    "users of SCRAM, described": Case(
        lambda _: DescribeUserScramCredentialsRequest([UserName("nobody")]),
        0,
        (cluster(Op.DESCRIBE),),
    ),
    "users of SCRAM, altered": Case(
        lambda _: AlterUserScramCredentialsRequest([ScramCredentialDeletion("nobody", 1)]),
        0,
        (cluster(Op.ALTER),),
    ),
    "token, for another user": Case(
        lambda _: CreateDelegationTokenRequest("User", "zoe"),
        3,
        (acl("User:zoe", Op.CREATE_TOKENS, ResourceType.USER),),
    ),
    "tokens of another user": Case(
        lambda _: DescribeDelegationTokenRequest([DescribeDelegationTokenOwner("User", "zoe")]),
        3,
        (),
    ),
    "token, renewed": Case(lambda _: RenewDelegationTokenRequest(b"x"), 2, ()),
    "token, ended": Case(lambda _: ExpireDelegationTokenRequest(b"x"), 2, ()),
}
"""By a name of the case."""

_PREFIXED, _DENY = PatternType.PREFIXED, acl_calls.DENY
DECISIONS: dict[str, tuple[AclCreation, ...]] = {
    "literal": (topic(Op.READ),),
    "prefixed": (acl(OWN, Op.WRITE, pattern=_PREFIXED),),
    "prefixed, of the whole name": (acl(TOPIC, Op.WRITE, pattern=_PREFIXED),),
    "prefixed, of another name": (acl(f"{TOPIC}s", Op.WRITE, pattern=_PREFIXED),),
    "for all topics": (acl("*", Op.DELETE),),
    "prefixed with an asterisk": (acl("*", Op.DELETE, pattern=_PREFIXED),),
    "all operations": (topic(Op.ALL),),
    "deny over allow": (topic(Op.ALL), acl(TOPIC, Op.DESCRIBE, permission=_DENY)),
    "deny what implies": (topic(Op.ALL), acl(TOPIC, Op.READ, permission=_DENY)),
    "deny all": (topic(Op.READ), acl("*", Op.ALL, permission=_DENY)),
    "deny by a prefix": (topic(Op.ALL), acl("acl", Op.ALTER, pattern=_PREFIXED, permission=_DENY)),
    "configurations implied": (topic(Op.ALTER_CONFIGS),),
    "everyone": (acl(TOPIC, Op.READ, principal="User:*"),),
    "everyone, but not carol": (
        acl(TOPIC, Op.READ, principal="User:*"),
        acl(TOPIC, Op.READ, permission=_DENY),
    ),
    "another user": (acl(TOPIC, Op.READ, principal="User:carol2"),),
    "another type of principal": (acl(TOPIC, Op.READ, principal="Group:carol"),),
    "this host": (acl(TOPIC, Op.READ, host="127.0.0.1"),),
    "another host": (acl(TOPIC, Op.READ, host="127.0.0.2"),),
    "another type of resource": (acl(TOPIC, Op.ALL, ResourceType.GROUP),),
}
"""ACLs whose effect is shown by the authorized operations on a topic."""

ANY_TOPIC: dict[str, tuple[AclCreation, ...]] = {
    "a prefix": (acl("x", Op.WRITE, pattern=_PREFIXED),),
    "all operations": (acl("x", Op.ALL),),
    "an operation that implies": (acl("x", Op.ALTER),),
    "all topics, but not all": (acl("*", Op.WRITE), acl("x", Op.WRITE, permission=_DENY)),
    "denied for all": (acl("x", Op.WRITE), acl("*", Op.WRITE, permission=_DENY)),
    "denied by name": (acl("x", Op.WRITE), acl("x", Op.WRITE, permission=_DENY)),
    "denied by a prefix": (
        acl("xyz", Op.WRITE, pattern=_PREFIXED),
        acl("xy", Op.WRITE, pattern=_PREFIXED, permission=_DENY),
    ),
    "denied in part": (
        acl("xy", Op.WRITE, pattern=_PREFIXED),
        acl("xyz", Op.WRITE, pattern=_PREFIXED, permission=_DENY),
    ),
    "of another host": (acl("x", Op.WRITE, host="127.0.0.2"),),
}
"""ACLs that do, or don't, let a client have a producer id."""
