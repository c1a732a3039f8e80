"""Transactions of one producer: states, transition table, and what each error means (KIP-98, 890).

A transaction is a span of one producer's time. All that it writes, and the offsets that it commits,
becomes visible to ``read_committed`` readers together, or never. Its coordinator keeps its state in
a log; a producer that starts under the same transactional id fences its predecessors by a higher
epoch and has their open transaction aborted.

* Protocol V1: before the first batch for a partition, the coordinator must have acknowledged
  AddPartitionsToTxn; before offsets are sent to a group, AddOffsetsToTxn.
* Protocol V2 (KIP-890, ``transaction.version`` 2): brokers add partitions and groups themselves,
  and each EndTxn raises the epoch, so that a late write can never enter the next transaction.

Whichever it is, a partition takes the producer's identity when the transaction first writes to it,
and loses it at the end: so a queue that has one is a part of the transaction. Under the same epoch
its numbers go on where they were (V1), under another one they start at 0.

A failure that leaves the producer usable makes the transaction *abortable*: nothing more is taken
or sent, and only an abort ends it. A commit that was sent may have taken effect whatever happens to
its response: it is repeated until there is one, and never followed by an abort. Where the numbers
of a partition are in doubt after a failure, the epoch must be raised before the next transaction:
by EndTxn in V2, by InitProducerId in V1 (KIP-360, from Kafka 2.5 on; older brokers can't, so there
the failure is fatal).

``action_for`` is the one place that decides what an error means; its table is that of Java's client
4.3.0, handler by handler. ``PREPARED`` is the place of two-phase commits. Sans-IO: the requests are
``transaction_requests``, the calls of the application ``transaction_manager``.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, TypeAlias

from kclient.error_codes import TABLE, ErrorCode
from kclient.errors import BrokerError, NoCommonVersion, TransactionAborted, WrongTransactionState
from kclient.errors import fresh as fresh_copy
from kclient.transitions import step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kclient.errors import KafkaError
    from kclient.producer._compiled import PartitionQueue
    from kclient.producer.idempotence import ProducerIdentity
    from kclient.producer.transaction_requests import Addition
    from kclient.types import TopicPartition

LAST_PRODUCE_OF_V1 = 11
"""From v12 on brokers add partitions to the transaction themselves."""
FIRST_FEATURE_LEVEL_OF_V2 = 2
"""Level of the feature ``transaction.version`` from which on protocol V2 is spoken."""


class TransactionState(enum.Enum):
    """The state of a producer's transaction."""

    UNINITIALIZED = "no identity yet: earlier producers of this id aren't fenced"
    INITIALIZING = "InitProducerId is under way"
    READY = "no transaction is open"
    IN_TRANSACTION = "records and offsets are taken"
    PREPARED = "all records are acknowledged; it may be ended from elsewhere"
    COMMITTING = "it is being flushed, or EndTxn(commit) awaits its response"
    ABORTABLE_ERROR = "something of it has failed: it takes nothing more, and can only be aborted"
    ABORTING = "what was not sent is dropped, or EndTxn(abort) awaits its response"
    FATAL_ERROR = "this producer is fenced, or can't go on safely"


class TransactionEvent(enum.Enum):
    """An event of a transaction."""

    INITIALIZE = "InitProducerId was sent"
    INITIALIZED = "the coordinator gave an identity"
    POSTPONE = "there is no identity, for a reason that may pass"
    BEGIN = "begin was called"
    PREPARE = "prepare was called, and everything was acknowledged"
    COMMIT = "commit was called"
    ABORT = "abort was called, or the block raised"
    FAIL = "a record, or a request about the transaction, has failed"
    END = "the coordinator ended it, or there was nothing to end"
    RENEW = "it has ended, and the epoch must be raised before the next one"
    DIE = "an error that nothing can follow: a fence, a missing right"


_S, _E = TransactionState, TransactionEvent

TRANSITIONS: dict[TransactionState, dict[TransactionEvent, TransactionState]] = {
    _S.UNINITIALIZED: {_E.INITIALIZE: _S.INITIALIZING, _E.DIE: _S.FATAL_ERROR},
    _S.INITIALIZING: {
        _E.INITIALIZED: _S.READY,
        _E.POSTPONE: _S.UNINITIALIZED,
        _E.DIE: _S.FATAL_ERROR,
    },
    _S.READY: {_E.BEGIN: _S.IN_TRANSACTION, _E.DIE: _S.FATAL_ERROR},
    _S.IN_TRANSACTION: {
        _E.PREPARE: _S.PREPARED,
        _E.COMMIT: _S.COMMITTING,
        _E.ABORT: _S.ABORTING,
        _E.FAIL: _S.ABORTABLE_ERROR,
        _E.DIE: _S.FATAL_ERROR,
    },
    _S.PREPARED: {
        _E.COMMIT: _S.COMMITTING,
        _E.ABORT: _S.ABORTING,
        _E.DIE: _S.FATAL_ERROR,
    },
    _S.COMMITTING: {
        _E.END: _S.READY,
        _E.RENEW: _S.INITIALIZING,
        _E.FAIL: _S.ABORTABLE_ERROR,
        _E.DIE: _S.FATAL_ERROR,
    },
    _S.ABORTABLE_ERROR: {
        _E.FAIL: _S.ABORTABLE_ERROR,
        _E.ABORT: _S.ABORTING,
        _E.DIE: _S.FATAL_ERROR,
    },
    _S.ABORTING: {
        _E.END: _S.READY,
        _E.RENEW: _S.INITIALIZING,
        _E.FAIL: _S.ABORTING,
        _E.DIE: _S.FATAL_ERROR,
    },
    _S.FATAL_ERROR: {_E.FAIL: _S.FATAL_ERROR, _E.DIE: _S.FATAL_ERROR},
}


class TransactionErrorAction(enum.Enum):
    """What follows from an error of a request that belongs to a transaction."""

    RETRY = "the same request may succeed in a while"
    REDISCOVER = "look the coordinator up, then send the same request again"
    ABORT = "the transaction can only be aborted; the next one may succeed"
    ABORT_AND_RENEW = "the same, where the epoch can be raised before the next one; else fatal"
    DIE = "this producer can't go on"


_A, _C = TransactionErrorAction, ErrorCode
_Actions: TypeAlias = dict[int, TransactionErrorAction]

_MOVED: _Actions = {_C.NOT_COORDINATOR: _A.REDISCOVER, _C.COORDINATOR_NOT_AVAILABLE: _A.REDISCOVER}
_FENCED: _Actions = {_C.INVALID_PRODUCER_EPOCH: _A.DIE, _C.PRODUCER_FENCED: _A.DIE}
_REFUSED: _Actions = {
    _C.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _A.DIE,
    _C.INVALID_TXN_STATE: _A.DIE,
    _C.INVALID_PRODUCER_ID_MAPPING: _A.DIE,
}
_ABORTABLE: _Actions = {_C.TRANSACTION_ABORTABLE: _A.ABORT}

ACTIONS: Mapping[str, _Actions] = {
    "InitProducerId": {
        **_MOVED,
        **_FENCED,
        **_ABORTABLE,
        _C.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _A.ABORT,
        _C.CLUSTER_AUTHORIZATION_FAILED: _A.ABORT,
    },
    "AddPartitionsToTxn": {
        **_MOVED,
        **_FENCED,
        **_REFUSED,
        **_ABORTABLE,
        _C.UNKNOWN_PRODUCER_ID: _A.ABORT_AND_RENEW,
    },
    "AddOffsetsToTxn": {
        **_MOVED,
        **_FENCED,
        **_REFUSED,
        **_ABORTABLE,
        _C.UNKNOWN_PRODUCER_ID: _A.ABORT_AND_RENEW,
        _C.GROUP_AUTHORIZATION_FAILED: _A.ABORT,
    },
    "TxnOffsetCommit": {
        **_MOVED,
        **_FENCED,
        **_ABORTABLE,
        _C.REQUEST_TIMED_OUT: _A.REDISCOVER,
        _C.GROUP_AUTHORIZATION_FAILED: _A.ABORT,
        _C.FENCED_INSTANCE_ID: _A.ABORT,
        _C.UNKNOWN_MEMBER_ID: _A.ABORT,
        _C.ILLEGAL_GENERATION: _A.ABORT,
        _C.STALE_MEMBER_EPOCH: _A.ABORT,
        _C.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _A.DIE,
    },
    "EndTxn": {
        **_MOVED,
        **_FENCED,
        **_REFUSED,
        **_ABORTABLE,
        _C.UNKNOWN_PRODUCER_ID: _A.ABORT_AND_RENEW,
    },
    "FindCoordinator": {
        **_ABORTABLE,
        _C.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _A.DIE,
        _C.GROUP_AUTHORIZATION_FAILED: _A.ABORT,
    },
    "Produce": {
        _C.CLUSTER_AUTHORIZATION_FAILED: _A.DIE,
        _C.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _A.DIE,
        _C.PRODUCER_FENCED: _A.DIE,
        _C.UNSUPPORTED_VERSION: _A.DIE,
        _C.INVALID_PRODUCER_ID_MAPPING: _A.DIE,
    },
}
"""By request, what its own codes mean. Any other code is retried if it is retriable; else it is
``ABORT`` for the two of ``_OTHERS_ABORT``, and ``DIE`` for the rest. ``STALE_MEMBER_EPOCH``, which
only groups of KIP-848 give, counts like ``ILLEGAL_GENERATION``: Java's client dies of it."""
_OTHERS_ABORT = frozenset({"AddPartitionsToTxn", "Produce"})


def action_for(request: str, code: int) -> TransactionErrorAction:
    """Return what ``code`` in a response means.

    Args:
        request: The API's name. For Produce: a batch that has failed for good, its retries
            included.
        code: The error code, not 0.
    """
    action = ACTIONS[request].get(code)
    if action is not None:
        return action
    if request != "Produce":
        info = TABLE.get(code)
        if info is not None and info.retriable:
            return TransactionErrorAction.RETRY
    if request in _OTHERS_ABORT:
        return TransactionErrorAction.ABORT
    return TransactionErrorAction.DIE


class Transactions:
    """The transaction of one producer: at most one is open.

    Args:
        transactional_id: Of the producer.
        identity: Its id and epoch.

    Attributes:
        transactional_id: As given.
        state: The state in the machine.
        error: The first error of the transaction that is open, or the fatal one.
        v2: The protocol of the transaction that is open, and of the next one.
        features_epoch: Of the finalized features that ``v2`` was taken from; -1 before any.
        can_renew: The coordinator can raise the epoch on request (InitProducerId v3).
        must_renew: The epoch must be raised before the next transaction, as EndTxn won't do it.
        end_sent: EndTxn(commit) was sent, or is about to be.
        end_unanswered: An EndTxn had no response: it may have been carried out.
        was_prepared: Another process may end it.
        offsets_added: Offsets of a group are, or may be, a part of it.
        unconfirmed: Requests of V1 that add to it and have not succeeded: the coordinator may
            have carried them out.
    """

    def __init__(self, transactional_id: str, identity: ProducerIdentity) -> None:
        self.transactional_id = transactional_id
        self.state = TransactionState.UNINITIALIZED
        self.error: KafkaError | None = None
        self.v2 = False
        self.features_epoch = -1
        self.can_renew = False
        self.must_renew = False
        self.offsets_added = False
        self.end_sent = False
        self.end_unanswered = False
        self.was_prepared = False
        self.unconfirmed: list[Addition] = []
        self._identity = identity
        self._members: dict[PartitionQueue, None] = {}  # that batches of it were numbered in
        self._numbered: dict[PartitionQueue, None] = {}  # with numbers under the present epoch
        self._added: set[TopicPartition] = set()
        self._wanted: dict[TopicPartition, None] = {}

    # What the application may do.

    def check_open(self, what: str = "a record was sent") -> None:
        """Raise unless a transaction is open that ``what`` can be a part of.

        Raises:
            WrongTransactionState: No transaction is open.
            TransactionAborted: The open one has failed.
            ProducerFenced, ...: The producer can't go on.
        """
        if self.state is not TransactionState.IN_TRANSACTION:
            raise self.refusal(what)

    def refusal(self, what: str) -> KafkaError:
        """Return the error for ``what``, a call that the present state doesn't allow."""
        if self.state is TransactionState.FATAL_ERROR and self.error is not None:
            return fresh_copy(self.error)
        if self.state is TransactionState.ABORTABLE_ERROR and self.error is not None:
            return aborted(self.error, "this transaction has failed, and takes nothing more")
        where = {
            TransactionState.IN_TRANSACTION: "while a transaction was open already",
            TransactionState.PREPARED: "while a prepared transaction awaited its end",
            TransactionState.COMMITTING: "while a transaction was being committed",
            TransactionState.ABORTING: "while a transaction was being aborted",
        }.get(self.state, "outside a transaction")
        return WrongTransactionState(
            f"{what} {where} (transactional_id={self.transactional_id!r})",
            hint=_REMEDIES.get(self.state, "begin one: `async with producer.transaction()`"),
            maybe_written=False,
        )

    @property
    def drops_records(self) -> bool:
        """What was not sent must be dropped: the transaction will not be committed."""
        return self.state in _DROPPING

    @property
    def reason(self) -> TransactionAborted:
        """Return the error of a record that is dropped."""
        return aborted(self.error, "the transaction was aborted")

    def is_in_doubt(self, *, committed: bool) -> bool:
        """Whether requests about the ended transaction may still arrive, and reach the next one.

        Only in V1, where both have the same epoch: what an abort didn't wait for, and the end of a
        prepared transaction, which another process may repeat.
        """
        asked = not self.is_untouched and not committed
        return not self.v2 and (self.was_prepared or asked)

    @property
    def is_untouched(self) -> bool:
        """Nothing was added to it, nor is to be."""
        return self.is_empty and not self._wanted

    @property
    def is_empty(self) -> bool:
        """Nothing was added to it, so its end needs no request."""
        added = self._members if self.v2 else self._added
        return not (self.offsets_added or self.unconfirmed or added)

    # Its life.

    def apply(self, event: TransactionEvent) -> None:
        """Apply ``event``; IllegalTransition if the state has no transition for it."""
        self.state = step(TRANSITIONS, self.state, event)

    def begin(self) -> None:
        """Open a transaction."""
        self.error = None
        self.end_sent = self.end_unanswered = self.was_prepared = False
        self.apply(TransactionEvent.BEGIN)

    def failed(self, error: KafkaError, *, of_end: bool = False) -> None:
        """Note that a part of the transaction has failed, which therefore can't be committed.

        Args:
            error: Why.
            of_end: It is the response to EndTxn; once that was sent, nothing else is a part of it.
        """
        if TransactionEvent.FAIL not in TRANSITIONS[self.state] or (self.end_sent and not of_end):
            return  # of an earlier one, or behind its end
        if self.state is not TransactionState.ABORTING:
            self.error = self.error or error
        self.apply(TransactionEvent.FAIL)

    def died(self, error: KafkaError) -> None:
        """Note an error after which this producer can't be used any more, and which says so."""
        error.fatal = True
        if self.state is not TransactionState.FATAL_ERROR:
            self.error = error
        self.apply(TransactionEvent.DIE)

    def batch_failed(self, error: KafkaError, *, numbered: bool) -> None:
        """Note that a batch, or a record that was in none yet, has failed.

        Args:
            error: Why.
            numbered: It has sequence numbers, which the log may lack now.
        """
        code = error.code if isinstance(error, BrokerError) else None
        if isinstance(error, NoCommonVersion) or (
            code is not None and action_for("Produce", code) is TransactionErrorAction.DIE
        ):
            self.died(error)
        else:
            if numbered and not self.v2:
                self.must_renew = True
            self.failed(error)

    def ended(self, *, renewed: bool) -> None:
        """Note the end of the transaction, by the coordinator or as there was nothing to end.

        Args:
            renewed: The response had a new identity, which is in place already.
        """
        if renewed:
            self.restart_numbers()
        for queue in self._members:
            queue.leave_transaction()
        self._members.clear()
        self._added.clear()
        self._wanted.clear()
        self.unconfirmed.clear()
        self.offsets_added = False
        self.apply(TransactionEvent.RENEW if self.must_renew else TransactionEvent.END)

    def renewed(self) -> None:
        """Note the identity of an InitProducerId response: all numbers start over."""
        self.must_renew = False
        self.restart_numbers()
        self.apply(TransactionEvent.INITIALIZED)

    def restart_numbers(self) -> None:
        """Have every partition start at 0 under the present epoch."""
        for queue in self._numbered:
            queue.restart_numbers()
        self._numbered.clear()

    def use_features(self, level: int, epoch: int) -> bool:
        """Take the protocol from finalized features; return whether it changed from V1 to V2.

        Args:
            level: Of ``transaction.version``; 0 where the cluster has none.
            epoch: Of the features; ignored unless it is newer than that of the last call.
        """
        if epoch <= self.features_epoch:
            return False
        self.features_epoch = epoch
        before, self.v2 = self.v2, level >= FIRST_FEATURE_LEVEL_OF_V2
        return self.v2 and not before

    # Its partitions.

    def join(self, queue: PartitionQueue) -> bool:
        """Have ``queue`` be a part of the transaction and take its identity, if it may.

        Returns:
            False where AddPartitionsToTxn must come first, as in V1; ``next_partitions`` has it
            then.
        """
        partition = queue.topic_partition
        if not self.v2 and partition not in self._added:
            self._wanted[partition] = None
            return False
        self._members[queue] = self._numbered[queue] = None
        queue.adopt(self._identity.current)
        return True

    def next_partitions(self) -> list[TopicPartition]:
        """Return the partitions that are to be added, of which records wait."""
        return list(self._wanted)

    def added(self, partitions: list[TopicPartition]) -> None:
        """Note that the coordinator has ``partitions``."""
        self._added.update(partitions)
        for partition in partitions:
            self._wanted.pop(partition, None)

    @property
    def last_produce_version(self) -> int | None:
        """The newest version of Produce that its protocol allows; None for any."""
        return None if self.v2 else LAST_PRODUCE_OF_V1

    @property
    def adds_first(self) -> bool:
        """No partition was added yet: the coordinator may still be ending the last transaction."""
        return not self._added


_REMEDIES = {
    TransactionState.IN_TRANSACTION: "a producer has one transaction at a time: end it first",
    TransactionState.PREPARED: "commit() or abort() it, or have another process end it",
    TransactionState.COMMITTING: "call commit() again, until it has an outcome",
    TransactionState.ABORTING: "begin() waits for its end, and opens another one",
}
"""What to do about a call that the state doesn't allow."""
_DROPPING = frozenset(
    {
        TransactionState.ABORTABLE_ERROR,
        TransactionState.ABORTING,
        TransactionState.FATAL_ERROR,
    }
)


def aborted(cause: KafkaError | None, what: str) -> TransactionAborted:
    """Return an error that says what happened to a transaction, because of ``cause`` if known."""
    error = TransactionAborted(what, maybe_written=False)
    error.__cause__ = cause
    return error
