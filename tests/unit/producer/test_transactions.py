"""The state of a producer's transaction, and what errors mean for it."""

from __future__ import annotations

import pytest

from kclient.broker_errors import MessageTooLarge, ProducerFenced, TopicAuthorizationFailed
from kclient.error_codes import TABLE, ErrorCode
from kclient.errors import NoCommonVersion, TransactionAborted, WrongTransactionState
from kclient.producer._compiled import PartitionQueue
from kclient.producer.idempotence import ProducerIdAndEpoch, ProducerIdentity
from kclient.producer.transactions import (
    ACTIONS,
    TransactionErrorAction,
    TransactionEvent,
    Transactions,
    TransactionState,
    action_for,
)

RETRY, REDISCOVER, ABORT, RENEW, DIE = TransactionErrorAction
RETRIABLE = {code for code, info in TABLE.items() if info.retriable}
C = ErrorCode
JAVA: dict[str, dict[TransactionErrorAction, set[int]]] = {
    "InitProducerId": {
        REDISCOVER: {C.NOT_COORDINATOR, C.COORDINATOR_NOT_AVAILABLE},
        ABORT: {
            *(C.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, C.CLUSTER_AUTHORIZATION_FAILED),
            C.TRANSACTION_ABORTABLE,
        },
    },
    "AddPartitionsToTxn": {
        REDISCOVER: {C.NOT_COORDINATOR, C.COORDINATOR_NOT_AVAILABLE},
        DIE: {
            *(C.INVALID_PRODUCER_EPOCH, C.PRODUCER_FENCED, C.INVALID_TXN_STATE),
            *(C.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, C.INVALID_PRODUCER_ID_MAPPING),
        },
        RENEW: {C.UNKNOWN_PRODUCER_ID},
    },
    "AddOffsetsToTxn": {
        REDISCOVER: {C.NOT_COORDINATOR, C.COORDINATOR_NOT_AVAILABLE},
        RENEW: {C.UNKNOWN_PRODUCER_ID},
        ABORT: {C.GROUP_AUTHORIZATION_FAILED, C.TRANSACTION_ABORTABLE},
    },
    "TxnOffsetCommit": {
        REDISCOVER: {C.NOT_COORDINATOR, C.COORDINATOR_NOT_AVAILABLE, C.REQUEST_TIMED_OUT},
        ABORT: {
            *(C.GROUP_AUTHORIZATION_FAILED, C.FENCED_INSTANCE_ID, C.TRANSACTION_ABORTABLE),
            *(C.UNKNOWN_MEMBER_ID, C.ILLEGAL_GENERATION, C.STALE_MEMBER_EPOCH),
        },
    },
    "EndTxn": {
        REDISCOVER: {C.NOT_COORDINATOR, C.COORDINATOR_NOT_AVAILABLE},
        RENEW: {C.UNKNOWN_PRODUCER_ID},
        ABORT: {C.TRANSACTION_ABORTABLE},
    },
    "FindCoordinator": {
        ABORT: {C.GROUP_AUTHORIZATION_FAILED, C.TRANSACTION_ABORTABLE},
    },
}
"""The handlers of TransactionManager in Java's client 4.3.0: what isn't here is retried if its
exception is a RetriableException, and else the end (abortable in AddPartitionsToTxn)."""


@pytest.mark.parametrize("request_name", JAVA)
def test_every_code_means_what_it_means_to_javas_client(request_name: str) -> None:
    listed = {code: action for action, codes in JAVA[request_name].items() for code in codes}
    other = ABORT if request_name == "AddPartitionsToTxn" else DIE
    for code in TABLE:
        if code:
            expected = listed.get(code, RETRY if code in RETRIABLE else other)
            assert action_for(request_name, code) is expected, ErrorCode(code).name


def test_a_batch_that_has_failed_for_good_ends_the_producer_in_a_few_cases_only() -> None:
    fatal = {code for code in TABLE if code and action_for("Produce", code) is DIE}
    assert fatal == {
        *(C.CLUSTER_AUTHORIZATION_FAILED, C.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        *(C.PRODUCER_FENCED, C.UNSUPPORTED_VERSION, C.INVALID_PRODUCER_ID_MAPPING),
    }
    assert action_for("Produce", C.INVALID_TXN_STATE) is ABORT
    assert action_for("Produce", C.INVALID_PRODUCER_EPOCH) is ABORT
    assert set(ACTIONS) == {*JAVA, "Produce"}


def ready(*, v2: bool = True) -> tuple[Transactions, ProducerIdentity]:
    identity = ProducerIdentity()
    transactions = Transactions("tx", identity)
    transactions.use_features(2 if v2 else 1, 5)
    transactions.apply(TransactionEvent.INITIALIZE)
    identity.requested()
    identity.granted(7, 0)
    transactions.renewed()
    return transactions, identity


def queue(index: int = 0) -> PartitionQueue:
    batches = [None] * (index + 1)
    return PartitionQueue("t", index, batches, idempotent=True, max_in_flight=5, batch_limit=1000)


def test_records_are_taken_in_an_open_transaction_only() -> None:
    transactions, _ = ready()
    with pytest.raises(WrongTransactionState, match="outside a transaction"):
        transactions.check_open()
    transactions.begin()
    transactions.check_open()
    transactions.apply(TransactionEvent.COMMIT)
    with pytest.raises(WrongTransactionState, match="being committed"):
        transactions.check_open()


def test_after_a_failure_only_an_abort_is_possible() -> None:
    transactions, _ = ready()
    transactions.begin()
    first = MessageTooLarge("x")
    transactions.batch_failed(first, numbered=True)
    transactions.batch_failed(TopicAuthorizationFailed("y"), numbered=False)
    assert transactions.state is TransactionState.ABORTABLE_ERROR and transactions.drops_records
    with pytest.raises(TransactionAborted) as raised:
        transactions.check_open()
    assert raised.value.__cause__ is first
    transactions.apply(TransactionEvent.ABORT)
    transactions.ended(renewed=True)
    assert transactions.state is TransactionState.READY
    transactions.begin()
    assert transactions.error is None


@pytest.mark.parametrize("error", [ProducerFenced("x"), NoCommonVersion("x")])
def test_after_a_fatal_failure_nothing_is(error: Exception) -> None:
    transactions, _ = ready()
    transactions.begin()
    transactions.batch_failed(error, numbered=True)  # type: ignore[arg-type]
    transactions.batch_failed(MessageTooLarge("later"), numbered=True)
    with pytest.raises(type(error)):
        transactions.check_open()
    assert transactions.reason.__cause__ is error


def test_a_failure_between_two_transactions_is_of_none() -> None:
    transactions, _ = ready()
    transactions.batch_failed(MessageTooLarge("late"), numbered=False)
    assert transactions.state is TransactionState.READY


def test_with_v2_a_partition_joins_at_once_and_starts_over_in_the_next() -> None:
    transactions, identity = ready()
    transactions.begin()
    assert transactions.is_empty
    one = queue()
    assert transactions.join(one) and not transactions.is_empty
    assert one.sequences is not None and one.sequences.identity == (7, 0)
    one.sequences.take(10)
    transactions.apply(TransactionEvent.COMMIT)
    identity.replaced(ProducerIdAndEpoch(7, 1))
    transactions.ended(renewed=True)
    assert one.sequences.identity is None and one.sequences.next == 0
    transactions.begin()
    assert transactions.is_empty and transactions.join(one)
    assert one.sequences.identity == (7, 1)


def test_with_v1_a_partition_joins_once_it_was_added_and_goes_on_in_the_next() -> None:
    transactions, _ = ready(v2=False)
    transactions.begin()
    one, two = queue(), queue(1)
    assert not transactions.join(one) and not transactions.join(two)
    assert transactions.next_partitions() == [("t", 0), ("t", 1)]
    assert transactions.adds_first and transactions.is_empty
    transactions.added([one.topic_partition])
    assert transactions.join(one) and not transactions.join(two)
    assert transactions.next_partitions() == [("t", 1)]
    assert not transactions.adds_first and not transactions.is_empty
    assert one.sequences is not None
    one.sequences.take(10)
    transactions.apply(TransactionEvent.COMMIT)
    transactions.ended(renewed=False)
    transactions.begin()
    assert transactions.is_empty and not transactions.join(one)
    transactions.added([one.topic_partition])
    assert transactions.join(one)
    assert one.sequences.next == 10


def test_with_v1_numbers_in_doubt_need_a_new_epoch() -> None:
    transactions, identity = ready(v2=False)
    transactions.begin()
    one = queue()
    transactions.join(one)
    transactions.added([one.topic_partition])
    transactions.join(one)
    assert one.sequences is not None
    one.sequences.take(10)
    transactions.batch_failed(MessageTooLarge("x"), numbered=True)
    transactions.apply(TransactionEvent.ABORT)
    transactions.ended(renewed=False)
    assert transactions.state is TransactionState.INITIALIZING
    identity.replaced(ProducerIdAndEpoch(7, 1))
    transactions.renewed()
    assert transactions.state is TransactionState.READY and not transactions.must_renew
    assert one.sequences.next == 0


@pytest.mark.parametrize(
    ("added", "prepared", "committed", "in_doubt"),
    [
        (True, False, False, True),  # a late AddPartitionsToTxn or TxnOffsetCommit
        (False, False, False, False),  # nothing was asked
        (True, False, True, False),  # everything was answered
        (True, True, True, True),  # another process may repeat the end
    ],
)
def test_with_v1_an_end_may_leave_requests_that_could_reach_the_next_transaction(
    added: bool, prepared: bool, committed: bool, in_doubt: bool
) -> None:
    transactions, _ = ready(v2=False)
    transactions.begin()
    if added:
        transactions.join(queue())  # asks for AddPartitionsToTxn
    transactions.was_prepared = prepared
    assert transactions.is_in_doubt(committed=committed) is in_doubt
    transactions.v2 = True
    assert not transactions.is_in_doubt(committed=committed)


def test_while_the_epoch_is_raised_no_transaction_is_open() -> None:
    transactions, _ = ready()
    transactions.begin()
    transactions.apply(TransactionEvent.COMMIT)
    transactions.must_renew = True
    transactions.ended(renewed=False)
    assert "outside a transaction" in str(transactions.refusal("a record was sent"))


def test_the_protocol_follows_the_newest_features_only() -> None:
    transactions, _ = ready(v2=False)
    assert not transactions.use_features(2, 5) and not transactions.v2  # not newer
    assert transactions.use_features(2, 6) and transactions.v2
    assert not transactions.use_features(2, 7)
    assert not transactions.use_features(1, 8) and not transactions.v2
    assert (transactions.last_produce_version, transactions.features_epoch) == (11, 8)
