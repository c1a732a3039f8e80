"""InitProducerId (22), AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26).

The requests of transactional producers to their coordinator, and of leaders that verify a
partition; ``transaction_writes.py`` has what is written, ``transaction_admin.py`` what is listed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from kclient.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from kclient.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kclient.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from kclient.testing.authorizer import AclOperation, ResourceType
from kclient.testing.image import OFFSETS_TOPIC
from kclient.testing.log_state import NO_ID, NO_IDENTITY, ProducerIdentity
from kclient.testing.request_context import RequestContext
from kclient.testing.responses import ApiError, PendingParts, PendingResult, whole
from kclient.testing.timers import Moment
from kclient.testing.transactions.coordinator import TransactionShard
from kclient.testing.transactions.metadata import (
    BUMPS_EPOCH,
    EndRequest,
    Partition,
)

_FIRST_OF_BROKERS = 4
"""The first version of AddPartitionsToTxn with several transactions, which brokers send."""
_FIRST_WITH_FENCED = 2
_FIRST_INIT_WITH_FENCED = 4
_FIRST_WITH_BUMP = 5
"""The first version of EndTxn that raises the epoch."""
_VERSION_1 = 0
"""What the coordinator notes of a producer that doesn't speak version 2, as Kafka does."""


def _fenced(code: ErrorCode, version: int, first: int) -> ErrorCode:
    """Older versions know no PRODUCER_FENCED."""
    if code is ErrorCode.PRODUCER_FENCED and version < first:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


# InitProducerId


def init_producer_id(
    call: RequestContext, request: InitProducerIdRequest
) -> PendingResult[InitProducerIdResponse] | InitProducerIdResponse:
    """Return a new id with epoch 0, or the next epoch of a transactional id."""

    def respond(
        code: ErrorCode, identity: ProducerIdentity = NO_IDENTITY
    ) -> InitProducerIdResponse:
        shown = _fenced(code, call.version, _FIRST_INIT_WITH_FENCED)
        return InitProducerIdResponse(
            error_code=shown, producer_id=identity.producer_id, producer_epoch=identity.epoch
        )

    transactional_id = request.transactional_id
    denied = _denied_id(call, transactional_id)
    if denied is not None:
        return respond(denied)
    known = (request.producer_id, request.producer_epoch)
    if transactional_id == "" or (NO_ID in known and known != NO_IDENTITY):
        refused = call.error_for()
        return respond(ErrorCode.INVALID_REQUEST if refused is None else refused)
    if transactional_id is None:
        code = call.error_for()
        identity = NO_IDENTITY if code else ProducerIdentity(call.broker.new_producer_id(), 0)
        return respond(code or ErrorCode.NONE, identity)
    expected = None if known == NO_IDENTITY else ProducerIdentity(*known)

    def begin(
        shard: TransactionShard, moment: Moment, reply: Callable[[InitProducerIdResponse], None]
    ) -> None:
        shard.init_producer_id(
            transactional_id,
            request.transaction_timeout_ms,
            expected,
            lambda code, identity: reply(respond(code, identity)),
            moment,
        )

    return whole(
        call, lambda: call.broker.transactions.ask(transactional_id, begin, respond), respond
    )


def _denied_id(call: RequestContext, transactional_id: str | None) -> ErrorCode | None:
    """The error of a client that may not have that id, or any producer id; None if it may."""
    if transactional_id is not None:
        return call.denial(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    denied = call.denial(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
    if denied and call.allows_on_any(AclOperation.WRITE, ResourceType.TOPIC):
        return None
    return denied


# Partitions and groups


def add_partitions(
    call: RequestContext, request: AddPartitionsToTxnRequest
) -> PendingResult[AddPartitionsToTxnResponse] | AddPartitionsToTxnResponse:
    """Add partitions to transactions, or only verify them; before version 4 there is one."""
    response = AddPartitionsToTxnResponse()
    if call.version >= _FIRST_OF_BROKERS:
        denied = call.denial(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
        if denied is not None:
            response.error_code = denied
            return response
    gathering = PendingParts(response)
    transactions = request.transactions
    if call.version < _FIRST_OF_BROKERS:
        transactions = [
            AddPartitionsToTxnTransaction(
                request.v3_and_below_transactional_id,
                request.v3_and_below_producer_id,
                request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
        ]

    def fill(
        transaction: AddPartitionsToTxnTransaction,
        came: Callable[[], None],
        codes: Mapping[Partition, ErrorCode],
    ) -> None:
        results = [
            AddPartitionsToTxnTopicResult(
                topic.name,
                [
                    AddPartitionsToTxnPartitionResult(
                        index,
                        _fenced(codes[topic.name, index], call.version, _FIRST_WITH_FENCED),
                    )
                    for index in topic.partitions
                ],
            )
            for topic in transaction.topics
        ]
        if call.version < _FIRST_OF_BROKERS:
            response.results_by_topic_v3_and_below = results
        else:
            response.results_by_transaction.append(
                AddPartitionsToTxnResult(transaction.transactional_id, results)
            )
        came()

    for transaction in transactions:
        _add(call, transaction, partial(fill, transaction, gathering.expect()))
    return gathering.close()


def _add(
    call: RequestContext,
    transaction: AddPartitionsToTxnTransaction,
    reply: Callable[[Mapping[Partition, ErrorCode]], None],
) -> None:
    """Add a transaction's partitions; if one doesn't exist, or is to fail, none is added."""
    wanted = [(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    operation, denied = AclOperation.CLUSTER_ACTION, None
    if call.version < _FIRST_OF_BROKERS:
        operation = AclOperation.WRITE
        denied = _denied_id(call, transaction.transactional_id)
    refused = {
        one: code
        for one in wanted
        if (code := denied or call.refusal_of(operation, *one)) is not None
    }
    if refused:
        reply({one: refused.get(one, ErrorCode.OPERATION_NOT_ATTEMPTED) for one in wanted})
        return
    coordinator = call.broker.transactions
    answer = coordinator.later(reply)
    name = transaction.transactional_id
    producer = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
    version = BUMPS_EPOCH if call.version >= _FIRST_OF_BROKERS else _VERSION_1

    def late(codes: Mapping[Partition, ErrorCode]) -> None:
        answer({one: call.error_for(*one, after=True) or code for one, code in codes.items()})

    def add(shard: TransactionShard, moment: Moment) -> None:
        if transaction.verify_only:
            late(shard.verify_partitions(name, producer, wanted))
        else:
            shard.add_partitions(
                name,
                producer,
                wanted,
                version,
                lambda code: late(dict.fromkeys(wanted, code)),
                moment,
            )

    try:
        coordinator.operate(name, add)
    except ApiError as error:
        reply(dict.fromkeys(wanted, error.code))


def add_offsets(
    call: RequestContext, request: AddOffsetsToTxnRequest
) -> PendingResult[AddOffsetsToTxnResponse] | AddOffsetsToTxnResponse:
    """Add the partition of ``__consumer_offsets`` that has a group's offsets."""
    partition = (OFFSETS_TOPIC, call.broker.groups.partition_of(request.group_id))
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)

    def respond(code: ErrorCode) -> AddOffsetsToTxnResponse:
        return AddOffsetsToTxnResponse(error_code=_fenced(code, call.version, _FIRST_WITH_FENCED))

    denied = _denied_id(call, request.transactional_id) or call.denial(
        AclOperation.READ, ResourceType.GROUP, request.group_id
    )
    if denied is not None:
        return respond(denied)

    def add(
        shard: TransactionShard, moment: Moment, reply: Callable[[AddOffsetsToTxnResponse], None]
    ) -> None:
        shard.add_partitions(
            request.transactional_id,
            producer,
            [partition],
            _VERSION_1,
            lambda code: reply(respond(code)),
            moment,
        )

    coordinator = call.broker.transactions
    return whole(call, lambda: coordinator.ask(request.transactional_id, add, respond), respond)


# The end


def end_transaction(
    call: RequestContext, request: EndTxnRequest
) -> PendingResult[EndTxnResponse] | EndTxnResponse:
    """Commit or abort; from version 5 on with the identity for the next transaction."""

    def respond(code: ErrorCode, identity: ProducerIdentity = NO_IDENTITY) -> EndTxnResponse:
        shown = _fenced(code, call.version, _FIRST_WITH_FENCED)
        return EndTxnResponse(
            error_code=shown, producer_id=identity.producer_id, producer_epoch=identity.epoch
        )

    denied = _denied_id(call, request.transactional_id)
    if denied is not None:
        return respond(denied)
    wanted = EndRequest(
        ProducerIdentity(request.producer_id, request.producer_epoch),
        request.committed,
        BUMPS_EPOCH if call.version >= _FIRST_WITH_BUMP else _VERSION_1,
    )

    def end(
        shard: TransactionShard, moment: Moment, reply: Callable[[EndTxnResponse], None]
    ) -> None:
        shard.end(
            request.transactional_id,
            wanted,
            lambda code, identity: reply(respond(code, identity)),
            moment,
        )

    coordinator = call.broker.transactions
    return whole(call, lambda: coordinator.ask(request.transactional_id, end, respond), respond)
