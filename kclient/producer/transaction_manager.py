"""Transactions as the application begins and ends them; ``Transaction`` is its handle.

``Producer`` has one manager if it has a transactional id. It drives the state machine of
``transactions``: opens the producer for records, and ends a transaction in a task of its own, so
that an end that was begun goes on whatever happens to its caller. Requests are
``transaction_requests``; the sender adds partitions and drops what a failed transaction has not
sent.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from kclient.clock import wall_ns_of
from kclient.cluster.wakeups import Broadcast
from kclient.durations import call_timeout
from kclient.errors import (
    ClientClosed,
    CommitOutcomeUnknown,
    InvalidArgument,
    InvalidConfig,
    KafkaError,
    RequestTimedOut,
    WrongTransactionState,
    a_or_an,
    fresh,
)
from kclient.producer.transactions import TransactionEvent, TransactionState, aborted
from kclient.types import (
    GroupMetadata,
    OffsetAndMetadata,
    PreparedTransaction,
    TopicPartition,
    checked_commit,
    checked_partition,
)

if TYPE_CHECKING:
    from types import TracebackType

    from kclient.cluster.core import ClientCore
    from kclient.config import ProducerConfig
    from kclient.producer.admission import Admission
    from kclient.producer.flush import Flusher
    from kclient.producer.idempotence import ProducerIdAndEpoch, ProducerIdentity
    from kclient.producer.producer import Producer
    from kclient.producer.sender import Sender
    from kclient.producer.transaction_requests import TransactionRequests
    from kclient.producer.transactions import Transactions

logger = logging.getLogger("kclient.producer")

K = TypeVar("K")
V = TypeVar("V")

FEATURE = "transaction.version"
_EXIT_PATIENCE = 5.0
"""Seconds that a block that raised waits for its abort, which goes on after that."""
_MARKERS = 0.0005
"""Seconds after EndTxn (V2) before the next transaction begins. A write that comes before the
markers of the last one waits at the leader for ``add.partitions.to.txn.retry.backoff.ms``, 20 ms:
without it a third did, on Kafka 4.3. Loops wait whole milliseconds: less than one is too short."""
_S, _E = TransactionState, TransactionEvent


class OffsetSource(Protocol):
    """A consumer, as far as a transaction needs it to commit what was read."""

    def group_metadata(self) -> GroupMetadata:
        """Return its identity in its group."""
        ...

    def offsets_to_commit(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return the next offset to read of each partition that records were returned of."""
        ...


class TransactionManager:
    """The transactions of one producer.

    Tasks: ``end-transaction`` from the call that ends one until it has ended; ``raise-epoch`` where
    the next one needs a higher epoch, until there is one.

    Args:
        core: The client's core.
        config: The producer's.
        transactions: The state machine.
        identity: Producer id and epoch.
        requests: The requests.
        sender: Sends the records.
        flusher: Waits for them.
        admission: Takes them.
    """

    def __init__(
        self,
        core: ClientCore,
        config: ProducerConfig,
        transactions: Transactions,
        identity: ProducerIdentity,
        requests: TransactionRequests,
        sender: Sender,
        flusher: Flusher,
        admission: Admission,
    ) -> None:
        self._core = core
        self._config = config
        self._log = core.hooks.log(logger)
        self._transactions = transactions
        self._identity = identity
        self._requests = requests
        self._sender = sender
        self._flusher = flusher
        self._appender = admission.appender
        self._admission = admission
        self._owner: object = None  # the handle that began the last transaction
        self._end: _End | None = None  # the last one
        self._renewal: asyncio.Task[KafkaError | None] | None = None  # the last one
        self._markers_due = -math.inf
        self._offsets_pending = 0  # calls of commit_offsets
        self._offsets_done = Broadcast()
        self._closed = False

    # Begin.

    async def initialize(self, timeout: float) -> None:
        """Get an identity: earlier producers of the id are fenced, and their transaction aborted.

        Called once; where it fails, the producer is closed.

        Raises:
            RequestTimedOut: The coordinator gave none within ``timeout``.
            TransactionalIdAuthorizationFailed, ...: It refuses.

        Cancellation: as where it fails.
        """
        self._transactions.apply(_E.INITIALIZE)
        self._identity.requested()
        self._identity.granted(*await self._requests.initialize(timeout))
        self._use_features()
        self._transactions.renewed()

    def _use_features(self) -> bool:
        features, epoch = self._core.network.finalized_features()
        return self._transactions.use_features(features.get(FEATURE, 0), epoch)

    async def begin(self, owner: object, timeout: float | None) -> None:
        """Open a transaction for the handle ``owner``, once the last one has ended."""
        left = self._deadline(timeout)
        end = self._end
        if end is not None:
            await self._wait(end, left)
            if end.by_commit and not end.seen:
                end.seen = True
                self._raise_unless_committed(end)
        if self._is(_S.UNINITIALIZED):
            self._transactions.apply(_E.INITIALIZE)
            self._begin_renewal()
        if self._is(_S.INITIALIZING) and self._renewal is not None:
            await self._wait_renewed(self._renewal, left)
        if (soon := self._markers_due - self._core.clock.now()) > 0:
            await asyncio.sleep(soon)
        if not self._is(_S.READY):
            raise self._transactions.refusal("begin was called")
        self._transactions.begin()
        self._owner = owner
        self._core.counters.add("producer.transactions_begun")
        self._appender.open(asyncio.get_running_loop(), wall_ns_of(self._core.clock))

    async def commit_offsets(
        self,
        owner: object,
        group: GroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        timeout: float | None,
    ) -> None:
        """Have the end of the open transaction commit ``offsets``."""
        left = self._deadline(timeout)
        self._check_owner(owner, "commit_offsets was called")
        self._transactions.check_open("commit_offsets was called")
        if not offsets:
            return
        seconds = left - self._core.clock.now()
        self._offsets_pending += 1
        try:
            await self._requests.commit_offsets(self._identity.current, group, offsets, seconds)
        except (RequestTimedOut, asyncio.CancelledError) as error:
            # Whether they are a part of it isn't known, so neither is whether it is empty.
            cause = error if isinstance(error, KafkaError) else RequestTimedOut("cancelled")
            self._transactions.failed(cause)
            if not self._transactions.v2:
                self._transactions.must_renew = True
            raise
        finally:
            self._offsets_pending -= 1
            self._offsets_done.notify()
            if self._transactions.drops_records:
                self._sender.wake()

    async def prepare(self, owner: object, timeout: float | None) -> PreparedTransaction:
        """Wait for everything in the open transaction, then take nothing more."""
        left = self._deadline(timeout)
        self._check_owner(owner, "prepare was called")
        transactions, identity = self._transactions, self._identity.current
        transactions.check_open("prepare was called")
        try:
            async with asyncio.timeout(max(0.0, left - self._core.clock.now())):
                while self._offsets_pending or not self._sender.is_drained:
                    await self._flusher.settle()
                    await self._sender.drain()
                    await self._offsets_settled()
        except TimeoutError:
            raise RequestTimedOut("not everything was acknowledged in time") from None
        if transactions.state is not _S.IN_TRANSACTION:
            raise transactions.refusal("prepare was called")
        self._appender.close()
        transactions.apply(_E.PREPARE)
        transactions.was_prepared = True
        return PreparedTransaction(
            transactions.transactional_id,
            identity.producer_id,
            identity.epoch,
            2 if transactions.v2 else 1,
            transactions.is_empty,
        )

    # End.

    async def commit(self, owner: object, timeout: float | None) -> None:
        """Commit the open transaction, or wait for a commit that goes on already."""
        left = self._deadline(timeout)
        self._check_owner(owner, "commit was called")
        transactions, end = self._transactions, self._end
        if end is None or end.is_done:
            if self._is_untouched:
                self._end_at_once(commit=True)
                return
            if transactions.state is _S.ABORTABLE_ERROR:
                end = self._begin_end(commit=False, by_commit=True)
                end.failure = not_committed(transactions.error)
            elif transactions.state in (_S.IN_TRANSACTION, _S.PREPARED):
                end = self._begin_end(commit=True, by_commit=True)
        if end is None or not end.by_commit or (end.seen and end.is_done):
            raise transactions.refusal("commit was called")
        await self._wait(end, left)
        end.seen = True
        self._raise_unless_committed(end)

    def _raise_unless_committed(self, end: _End) -> None:
        if end.committed:
            return
        if self._transactions.state is _S.FATAL_ERROR:
            raise self._transactions.refusal("")
        if end.failure is not None:
            raise fresh(end.failure)
        raise CommitOutcomeUnknown(
            "the producer was closed before the commit had an outcome",
            hint="read_committed readers show whether it was committed",
        )

    async def abort(self, owner: object, timeout: float | None) -> None:
        """Abort the open transaction; nothing happens where it was aborted already."""
        left = self._deadline(timeout)
        self._check_owner(owner, "abort was called")
        state, end = self._transactions.state, self._end
        if end is None or end.is_done:
            if self._is_untouched:
                self._end_at_once(commit=False)
                return
            if state in (_S.IN_TRANSACTION, _S.PREPARED, _S.ABORTABLE_ERROR):
                end = self._begin_end(commit=False, by_commit=False)
        if end is None or not end.aborts or state is _S.FATAL_ERROR:
            raise self._transactions.refusal("abort was called")
        await self._wait(end, left)
        end.seen = True
        if end.committed is None:
            if self._transactions.state is _S.FATAL_ERROR:
                raise self._transactions.refusal("")
            raise RequestTimedOut("the producer was closed before the abort had an outcome")

    async def close(self, timeout: float) -> None:
        """Abort what is open, or wait for the end of what is ending, for ``timeout`` at most.

        A prepared transaction stays as it is.
        """
        self._closed = True
        end = self._end
        if (end is None or end.is_done) and self._transactions.state in _OPEN:
            end = self._begin_end(commit=False, by_commit=False)
        if end is not None and end.task is not None and not end.task.done():
            await asyncio.wait([end.task], timeout=max(0.0, timeout))
            if not end.task.done():
                await self._core.stop(end.task)
        if self._renewal is not None and not self._renewal.done():
            await self._core.stop(self._renewal)

    def _deadline(self, timeout: float | None) -> float:
        self._core.check_usable()
        if self._closed:
            raise ClientClosed("this producer is closed", hint="make a new one")
        seconds = self._config.api_timeout if timeout is None else call_timeout(timeout)
        return self._core.clock.now() + seconds

    def _check_owner(self, owner: object, what: str) -> None:
        """Raise unless ``owner`` began the last transaction: it may not end or fill another's."""
        if owner is self._owner:
            return
        if self._is(_S.FATAL_ERROR) or self._transactions.state in _OVER:
            raise self._transactions.refusal(what)
        raise WrongTransactionState(
            f"{what} on a transaction that isn't the open one ({self._name})",
            hint="keep what `producer.transaction()` returned; a producer has one at a time",
        )

    def is_over(self, owner: object) -> bool:
        """Whether that of ``owner`` has ended, and a caller has its outcome."""
        if owner is not self._owner:
            return True
        return self._transactions.state in _OVER and (self._end is None or self._end.seen)

    def describe(self) -> str:
        """Return the transactional id and the state, for people."""
        return f"{self._name} {self._transactions.state.name}"

    @property
    def _name(self) -> str:
        return f"transactional_id={self._config.transactional_id!r}"

    async def _wait(self, end: _End, deadline: float) -> None:
        """Wait for ``end``, and for the higher epoch behind it, which it may do without.

        Raises:
            CommitOutcomeUnknown, RequestTimedOut: It goes on still at ``deadline``.
        """
        if end.task is not None and not end.task.done():
            left = deadline - self._core.clock.now()
            await asyncio.wait([end.task], timeout=max(0.0, left))
            self._core.check_usable()
        if not end.is_done and end.committed is None:
            if end.aborts:
                raise RequestTimedOut(f"no outcome of the abort yet ({self._name})")
            raise CommitOutcomeUnknown(f"no outcome of the commit yet ({self._name})")

    @property
    def _is_untouched(self) -> bool:
        """Whether the transaction that is open has nothing in it, and nothing on its way."""
        transactions = self._transactions
        return (
            transactions.state is _S.IN_TRANSACTION
            and transactions.is_untouched
            and not self._offsets_pending
            and self._sender.is_drained
        )

    def _end_at_once(self, *, commit: bool) -> None:
        """End an untouched transaction, which needs no request, nor a task that waits for one."""
        self._appender.close()
        self._transactions.apply(_E.COMMIT if commit else _E.ABORT)
        end = self._end = _End(aborts=not commit, by_commit=commit)
        end.committed, end.seen = commit, True
        self._count_end(commit=commit)
        self._transactions.ended(renewed=False)

    def _count_end(self, *, commit: bool) -> None:
        self._core.counters.add(
            "producer.transactions_committed" if commit else "producer.transactions_aborted"
        )

    def _begin_end(self, *, commit: bool, by_commit: bool) -> _End:
        self._appender.close()
        self._transactions.apply(_E.COMMIT if commit else _E.ABORT)
        if commit:  # what waits for space in other tasks is not a part of it any more
            error = self._transactions.refusal("a record was sent")
            for _ in self._admission.fail_waiting(error, enqueued_only=True):
                pass
        end = self._end = _End(aborts=not commit, by_commit=by_commit)
        end.task = self._core.spawn(self._finish(end), "end-transaction")
        return end

    async def _finish(self, end: _End) -> None:
        """End the transaction, however long that takes, and note how it ended."""
        try:
            if not end.aborts:
                await self._finish_commit(end)
            if self._is(_S.ABORTING):
                await self._sender.drain()
                await self._offsets_settled()
            if self._is(_S.ABORTING):
                await self._send_end(end, commit=False)
            if self._is(_S.INITIALIZING):
                # At once, and before the call returns: a request of a producer that has stopped
                # might fence the one that takes over.
                await asyncio.wait([self._begin_renewal()])
        except KafkaError as error:
            # Never a success: ``end.committed`` is set where the coordinator has responded.
            self._log.debug("the end of a transaction failed: %s", error)
            end.failure = end.failure or error
        finally:
            if self._is(_S.FATAL_ERROR):
                self._sender.wake()  # to drop what is left

    async def _finish_commit(self, end: _End) -> None:
        """Wait for all records, then commit; where a part of it has failed, abort instead."""
        transactions = self._transactions
        await self._flusher.settle()
        await self._offsets_settled()
        if self._is(_S.COMMITTING):
            await self._send_end(end, commit=True)
        if self._is(_S.ABORTABLE_ERROR):
            end.failure, end.aborts = not_committed(transactions.error), True
            transactions.apply(_E.ABORT)

    async def _offsets_settled(self) -> None:
        """Wait for the calls of ``commit_offsets``: EndTxn must not overtake their requests."""
        while self._offsets_pending:
            await self._offsets_done.wait(self._config.request_timeout)

    def _is(self, state: TransactionState) -> bool:
        return self._transactions.state is state

    async def _send_end(self, end: _End, *, commit: bool) -> None:
        """Send EndTxn until there is a response, unless nothing was added to the transaction."""
        transactions = self._transactions
        identity = None
        while not transactions.is_empty:
            transactions.end_sent = commit
            try:
                identity = await self._ended(commit=commit)
                break
            except RequestTimedOut as error:
                self._log.warning("a transaction has not ended yet: %s", error)
            except KafkaError:
                if transactions.state is _S.ABORTABLE_ERROR:
                    return  # it can't be committed
                raise
        end.committed = commit
        if identity is not None:
            self._identity.replaced(identity)
            self._markers_due = self._core.clock.now() + _MARKERS
        if self._use_features():
            transactions.must_renew = True  # so that nothing of V1 enters a transaction of V2
        elif transactions.can_renew and transactions.is_in_doubt(committed=commit):
            transactions.must_renew = True
        if transactions.must_renew and not transactions.can_renew:
            dead = aborted(
                transactions.error,
                "a transaction was aborted, and brokers before 2.5 can't let this producer begin "
                "another one: make a new producer",
            )
            dead.fatal = True
            transactions.died(dead)
            return
        self._count_end(commit=commit)
        transactions.ended(renewed=identity is not None)

    async def _ended(self, *, commit: bool) -> ProducerIdAndEpoch | None:
        """Return the identity that EndTxn gave, if any; also None if there was nothing to end."""
        timeout = self._config.api_timeout
        await self._requests.settle_additions(timeout)
        if self._transactions.is_empty:
            return None
        return await self._requests.end(self._identity.current, timeout, commit=commit)

    def _begin_renewal(self) -> asyncio.Task[KafkaError | None]:
        self._renewal = self._core.spawn(self._renew(), "raise-epoch")
        return self._renewal

    async def _renew(self) -> KafkaError | None:
        """Raise the epoch before the next transaction; where it is refused, the next begin asks.

        Returns:
            Why the coordinator refused.
        """
        while self._is(_S.INITIALIZING):
            try:
                identity = await self._requests.initialize(
                    self._config.api_timeout, self._identity.current
                )
            except RequestTimedOut as error:
                self._log.warning("the epoch could not be raised yet: %s", error)
            except KafkaError as error:
                if self._is(_S.INITIALIZING):
                    self._transactions.apply(_E.POSTPONE)
                return error
            else:
                self._identity.replaced(identity)
                self._transactions.renewed()
        return None

    async def _wait_renewed(
        self, renewal: asyncio.Task[KafkaError | None], deadline: float
    ) -> None:
        left = deadline - self._core.clock.now()
        await asyncio.wait([renewal], timeout=max(0.0, left))
        self._core.check_usable()
        if not renewal.done():
            raise RequestTimedOut(f"the producer's epoch could not be raised yet ({self._name})")
        failure = renewal.result()
        if failure is not None and self._is(_S.UNINITIALIZED):
            raise fresh(failure)


class _End:
    """One end of a transaction, for all callers that wait for it.

    Attributes:
        aborts: It is an abort, or a commit that became one.
        by_commit: ``commit`` asked for it.
        committed: True or False once the coordinator has ended it, or there was nothing to end.
        failure: Why it is not committed.
        seen: A caller has its outcome.
        task: Works at it; None where there was nothing to do.
    """

    def __init__(self, *, aborts: bool, by_commit: bool) -> None:
        self.aborts = aborts
        self.by_commit = by_commit
        self.committed: bool | None = None
        self.failure: KafkaError | None = None
        self.seen = False
        self.task: asyncio.Task[Any] | None = None

    @property
    def is_done(self) -> bool:
        """Whether nothing works at it any more."""
        return self.task is None or self.task.done()


def not_committed(cause: KafkaError | None) -> KafkaError:
    """Return the error of a commit that became an abort."""
    error = aborted(cause, "the transaction was not committed, but aborted")
    error.hint = "have the consumer go back, and do it again in a new transaction"
    return error


_OPEN = frozenset({_S.IN_TRANSACTION, _S.ABORTABLE_ERROR})
_OVER = frozenset({_S.READY, _S.INITIALIZING, _S.UNINITIALIZED})


class Transaction(Generic[K, V]):
    """One transaction: what is sent in it becomes visible together, or not at all (KIP-98).

    ``async with producer.transaction() as txn`` begins it, commits at the end of the block, and
    aborts if the block raises. Or call ``begin``, ``commit`` and ``abort``; after its end it may
    begin again. A producer has one transaction at a time.

    Attributes:
        send, enqueue, enqueue_nowait, send_many, send_arrow: Those of the producer.

    Example::

        async with kclient.Producer("localhost:9092", transactional_id="audit-1") as producer:
            async with producer.transaction() as txn:
                txn.send("audited", b"value")
                await txn.commit_offsets(consumer)
    """

    def __init__(self, producer: Producer[K, V], manager: TransactionManager) -> None:
        self._manager = manager
        self.send = producer.send
        self.enqueue = producer.enqueue
        self.enqueue_nowait = producer.enqueue_nowait
        self.send_many = producer.send_many
        self.send_arrow = producer.send_arrow

    async def begin(self, *, timeout: float | None = None) -> None:
        """Begin it, once the end of the producer's last transaction has an outcome.

        Args:
            timeout: Seconds; ``api_timeout`` by default.

        Raises:
            WrongTransactionState: Another one is open.
            TransactionAborted: A commit that was cancelled, or had no outcome in time, has turned
                out to have failed. Call it again to begin.
            CommitOutcomeUnknown, RequestTimedOut: The last one has not ended within ``timeout``, or
                the epoch was not raised behind it.
            ProducerFenced: A newer producer has the same transactional id.
            ClientClosed, WrongContext, BackgroundTaskDied: The producer can't be used (here).

        Cancellation: nothing is open.
        """
        await self._manager.begin(self, timeout)

    async def commit(self, *, timeout: float | None = None) -> None:
        """Wait for all that was sent, then commit.

        Args:
            timeout: Seconds; ``api_timeout`` by default.

        Raises:
            TransactionAborted: A part of it failed, which is the ``__cause__``: it was aborted.
            CommitOutcomeUnknown: There was no response in time. Call it again: it can't be aborted.
            RequestTimedOut: It is not committed, but its abort had no response in time.
            WrongTransactionState: None is open.
            ProducerFenced: A newer producer has the same transactional id, or the coordinator has
                aborted it after ``transaction_timeout``. Nothing is committed, unless
                ``maybe_written`` is True: then an earlier attempt had no response.
            ClientClosed, WrongContext, BackgroundTaskDied: The producer can't be used (here).

        Cancellation: the commit goes on. ``commit`` again, or the next ``begin``, waits for it and
        raises if it failed.
        """
        await self._manager.commit(self, timeout)

    async def prepare(self, *, timeout: float | None = None) -> PreparedTransaction:
        """Wait for all that was sent; another process may end the transaction from then on.

        ``await admin.end_transaction(prepared, commit=True)`` does so, even when this producer was
        closed or has crashed: ``close`` leaves a prepared transaction open. ``commit`` and
        ``abort`` of this object are possible, too, but not both ways, and so the end of an
        ``async with`` block commits it: use ``begin``. What ends it otherwise: the
        next producer with this transactional id, which aborts it when it starts, and
        ``transaction_timeout``, after which the coordinator aborts it.

        Args:
            timeout: Seconds; ``api_timeout`` by default.

        Returns:
            What the other process needs.

        Raises:
            TransactionAborted: A part of it failed: it can only be aborted.
            RequestTimedOut: Not everything was acknowledged in time; it is open still.
            WrongTransactionState: None is open.
            ProducerFenced, ClientClosed, WrongContext, BackgroundTaskDied: As with ``commit``.

        Cancellation: it is open still.
        """
        return await self._manager.prepare(self, timeout)

    async def abort(self, *, timeout: float | None = None) -> None:
        """Drop what was not sent yet, and have readers skip the rest.

        Deliveries that had no outcome fail with TransactionAborted. Nothing happens where the
        transaction was aborted already, as by a ``commit`` that failed.

        Args:
            timeout: Seconds; ``api_timeout`` by default.

        Raises:
            RequestTimedOut: There was no response in time. It goes on; the next ``begin`` waits.
            WrongTransactionState: None is open, or it is being committed.
            ProducerFenced: A newer producer has the same transactional id, and has aborted it.
            ClientClosed, WrongContext, BackgroundTaskDied: The producer can't be used (here).

        Cancellation: the abort goes on; the next ``begin`` waits for it.
        """
        await self._manager.abort(self, timeout)

    async def commit_offsets(
        self,
        source: OffsetSource | GroupMetadata,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Commit offsets of a group if, and only if, this transaction commits (KIP-447).

        A member that was replaced meanwhile is fenced by the generation in its metadata.

        Args:
            source: A consumer in a group, with ``enable_auto_commit=False``, or what its
                ``group_metadata()`` returned.
            offsets: The next offset to read, by partition; by default those after the records that
                the consumer has returned so far.
            timeout: Seconds; ``api_timeout`` by default.

        Raises:
            UnknownMemberId, IllegalGeneration, ...: The member is not in the group any more. Here
                and below the transaction can only be aborted.
            RequestTimedOut: The coordinators gave no response in time.
            NoCommonVersion: Brokers before 2.5 can't check the generation; the text has a remedy.
            InvalidArgument: ``offsets`` are missing, or invalid.
            InvalidConfig: The consumer commits by itself, so also what this transaction won't.
            WrongTransactionState, TransactionAborted: None is open, or it has failed.
            ProducerFenced, ClientClosed, ...: As with ``commit``.

        Cancellation: the transaction can only be aborted, as the offsets may be a part of it.
        """
        group, checked = _offsets_of(source, offsets)
        await self._manager.commit_offsets(self, group, checked, timeout)

    def __repr__(self) -> str:
        return f"<Transaction {self._manager.describe()}>"

    async def __aenter__(self) -> Self:
        """``begin``. Cancellation: as there."""
        await self.begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """``commit``; after an error ``abort``, which is waited for 5 s at most, and goes on.

        Nothing where the block itself has ended it. If the abort shows that the producer can't go
        on, such as ProducerFenced, that is raised instead of an error of this package.

        Cancellation: as with ``commit`` and ``abort``.
        """
        if self._manager.is_over(self):
            return
        if error is None:
            await self.commit()
            return
        try:
            await self.abort(timeout=_EXIT_PATIENCE)
        except KafkaError as failure:
            # The block's own error is the reason why it ended; this one must not hide it, unless
            # that was the first sign of it.
            if failure.fatal and isinstance(error, KafkaError) and not error.fatal:
                raise failure from error
            if failure is not error:
                error.add_note(f"while its transaction was aborted: {failure}")


def _offsets_of(
    source: OffsetSource | GroupMetadata,
    offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None,
) -> tuple[GroupMetadata, dict[TopicPartition, OffsetAndMetadata]]:
    if isinstance(source, GroupMetadata):
        if offsets is None:
            raise InvalidArgument("commit_offsets needs offsets beside a GroupMetadata")
        return source, _checked(offsets)
    if not hasattr(source, "group_metadata") or not hasattr(source, "offsets_to_commit"):
        raise InvalidArgument(
            f"commit_offsets got {a_or_an(type(source).__name__)}: a consumer in a group, or a "
            "GroupMetadata, is needed"
        )
    group = source.group_metadata()
    if getattr(getattr(source, "config", None), "enable_auto_commit", False):
        raise InvalidConfig(
            "this consumer commits by itself, and so also what the transaction won't",
            hint="Consumer(..., enable_auto_commit=False)",
        )
    return group, _checked(source.offsets_to_commit() if offsets is None else offsets)


def _checked(
    offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
) -> dict[TopicPartition, OffsetAndMetadata]:
    if not isinstance(offsets, Mapping):
        raise InvalidArgument(f"offsets must be a mapping by TopicPartition, not {offsets!r}")
    return {checked_partition(key): checked_commit(value) for key, value in offsets.items()}
