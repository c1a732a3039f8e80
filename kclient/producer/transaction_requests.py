"""The requests of transactions, repeated until they have an outcome that counts.

InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn go to the coordinator of the
transactional id, TxnOffsetCommit to that of the group. ``transactions.action_for`` decides what an
error means; an outcome other than success is noted in ``Transactions`` before it is raised. The
versions are those of the protocol that the transaction began with, whatever a broker offers. It has
no task and no state of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from kclient.cluster.coordinator import Coordinator, CoordinatorKey, coordinator_error
from kclient.error_codes import ErrorCode
from kclient.errors import (
    BackgroundTaskDied,
    BrokerError,
    ClientClosed,
    KafkaError,
    NoCommonVersion,
    ProtocolError,
    RequestTimedOut,
)
from kclient.producer.idempotence import ProducerIdAndEpoch
from kclient.producer.transactions import TransactionErrorAction, TransactionState, action_for
from kclient.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kclient.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from kclient.protocol.messages.end_txn import EndTxnRequest
from kclient.protocol.messages.init_producer_id import InitProducerIdRequest
from kclient.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kclient.cluster.core import ClientCore
    from kclient.config import ProducerConfig
    from kclient.network import RequestBuilder
    from kclient.producer.transactions import Transactions
    from kclient.protocol.message import Request
    from kclient.types import GroupMetadata, OffsetAndMetadata

_LAST_OF_V1 = {"AddPartitionsToTxn": 3, "TxnOffsetCommit": 4, "EndTxn": 4}
_FIRST_THAT_RENEWS = 3
"""InitProducerId: takes the present id and epoch, and raises it only for their owner (KIP-360)."""
_FIRST_WITH_GENERATION = 3
"""TxnOffsetCommit: carries the member's generation, which fences its predecessors (KIP-447)."""
_STILL_ENDING = 0.02
"""Seconds before the first partition is added again, while the last transaction is still ending."""
_COMMITTED_OR_NOT = (
    "an earlier EndTxn had no response: read_committed readers show whether it was committed "
    "before another producer took over"
)
Addition: TypeAlias = AddPartitionsToTxnRequest | AddOffsetsToTxnRequest


class TransactionRequests:
    """The requests of one producer's transactions.

    Args:
        core: The client's core.
        config: The producer's.
        transactions: Whose state errors change.
    """

    def __init__(
        self, core: ClientCore, config: ProducerConfig, transactions: Transactions
    ) -> None:
        self._core = core
        self._config = config
        self._transactions = transactions
        self._id = transactions.transactional_id
        self._coordinator = Coordinator(core, self._id, CoordinatorKey.TRANSACTION)
        self._groups: dict[str, Coordinator] = {}

    async def initialize(
        self, timeout: float, current: ProducerIdAndEpoch | None = None
    ) -> ProducerIdAndEpoch:
        """Fence earlier producers of the id and have their transaction aborted; or raise the epoch.

        Args:
            timeout: Seconds for all attempts.
            current: The identity whose epoch is to be raised; None for a new producer.

        Returns:
            The producer id and epoch from now on.
        """
        before = current or ProducerIdAndEpoch(-1, -1)

        def build(version: int) -> InitProducerIdRequest:
            self._transactions.can_renew = version >= _FIRST_THAT_RENEWS
            return InitProducerIdRequest(
                transactional_id=self._id,
                transaction_timeout_ms=int(self._config.transaction_timeout * 1000),
                producer_id=before.producer_id,
                producer_epoch=before.epoch,
            )

        response = await self._ask(build, InitProducerIdRequest, _error_of, timeout)
        identity = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        if min(identity) < 0:
            raise ProtocolError(f"InitProducerId gave {identity}", struct="InitProducerIdResponse")
        return identity

    async def add_partitions(
        self, identity: ProducerIdAndEpoch, partitions: list[TopicPartition], timeout: float
    ) -> None:
        """Add ``partitions`` to the transaction (V1)."""
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for topic, partition in partitions:
            found = topics.setdefault(topic, AddPartitionsToTxnTopic(topic, []))
            found.partitions.append(partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=list(topics.values()),
        )

        await self._add(request, timeout)

    async def _add(self, request: Addition, timeout: float) -> None:
        """Send what adds to the transaction, and keep it in mind until that has succeeded."""
        self._transactions.unconfirmed.append(request)
        await self._ask_to_add(request, timeout)
        self._transactions.unconfirmed.remove(request)

    async def _ask_to_add(self, request: Addition, timeout: float) -> None:
        if isinstance(request, AddOffsetsToTxnRequest):
            await self._ask(request, AddOffsetsToTxnRequest, _error_of, timeout)
            return
        soon = _STILL_ENDING if self._transactions.adds_first else None
        errors = _errors_of_added_partitions
        await self._ask(request, AddPartitionsToTxnRequest, errors, timeout, soon=soon)

    async def settle_additions(self, timeout: float) -> None:
        """Repeat an addition that has not succeeded: that shows whether there is anything to end.

        One that succeeds is enough: the end is that of whatever else was added.

        Raises:
            RequestTimedOut: There was no response again.
            KafkaError: The producer can't go on.
        """
        transactions = self._transactions
        while transactions.unconfirmed:
            try:
                await self._ask_to_add(transactions.unconfirmed[-1], timeout)
            except BrokerError as error:
                if error.fatal:
                    raise
                transactions.unconfirmed.pop()  # it is refused
            else:
                transactions.offsets_added = True
                transactions.unconfirmed.clear()

    async def commit_offsets(
        self,
        identity: ProducerIdAndEpoch,
        group: GroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        timeout: float,
    ) -> None:
        """Have the end of the transaction commit ``offsets`` to ``group``."""
        deadline = self._core.clock.now() + timeout
        if self._transactions.v2:
            self._transactions.offsets_added = True
        else:
            await self._add(AddOffsetsToTxnRequest(self._id, *identity, group.group), timeout)
            self._transactions.offsets_added = True
        coordinator = self._groups.get(group.group)
        if coordinator is None:
            coordinator = self._groups[group.group] = Coordinator(self._core, group.group)
        await self._ask(
            _OffsetsBuilder(self._id, identity, group, offsets).build,
            TxnOffsetCommitRequest,
            lambda response: [
                (row.error_code, TopicPartition(topic.name, row.partition_index))
                for topic in response.topics
                for row in topic.partitions
            ],
            deadline - self._core.clock.now(),
            coordinator=coordinator,
        )

    async def end(
        self, identity: ProducerIdAndEpoch, timeout: float, *, commit: bool
    ) -> ProducerIdAndEpoch | None:
        """Commit or abort; return the identity of the next transaction where it is another one."""
        request = EndTxnRequest(self._id, *identity, commit)
        response = await self._ask(request, EndTxnRequest, _error_of, timeout, last=not commit)
        if response.producer_id < 0:
            return None
        return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

    async def _ask(
        self,
        request: RequestBuilder,
        api: type[Request],
        errors: Callable[[Any], Iterable[tuple[int, TopicPartition | None]]],
        timeout: float,
        *,
        coordinator: Coordinator | None = None,
        soon: float | None = None,
        last: bool = False,
    ) -> Any:
        """Send ``request`` to its coordinator until it succeeds.

        Args:
            request: The message, or a callable that makes it.
            api: Its class.
            errors: Returns the error codes of a response, with the partition of each.
            timeout: Seconds for all attempts.
            coordinator: Of the group; that of the transactional id by default.
            soon: Seconds before it is repeated after CONCURRENT_TRANSACTIONS.
            last: It is an abort, after which another one would help no more.

        Raises:
            RequestTimedOut: There was no outcome in time.
            KafkaError: What the transaction has failed of.
        """
        name = api.NAME
        coordinator = coordinator or self._coordinator
        return await coordinator.call(
            request,
            api=api,
            check=lambda response, node_id: self._error_in(errors(response), name, node_id),
            may_repeat=lambda asked, error: self._may_repeat(coordinator, asked, error, last=last),
            retry_state=self._core.calls.retry_state(
                f"{name} of transactional id {self._id}", timeout
            ),
            max_version=None if self._transactions.v2 else _LAST_OF_V1.get(name),
            soon=soon,
        )

    def _error_in(
        self, errors: Iterable[tuple[int, TopicPartition | None]], name: str, node_id: int
    ) -> KafkaError | None:
        for code, partition in errors:
            if code:
                about = f" for {partition}" if partition is not None else ""
                return coordinator_error(
                    code,
                    f"{name}{about} of transactional id {self._id} failed",
                    topic_partition=partition,
                    node_id=node_id,
                )
        return None

    def _may_repeat(
        self, coordinator: Coordinator, name: str, error: KafkaError, *, last: bool
    ) -> bool:
        """Return whether to try again after ``error``; if not, note what it means."""
        if name == "EndTxn" and not isinstance(error, BrokerError):
            self._transactions.end_unanswered = True
        if isinstance(error, ClientClosed | BackgroundTaskDied):
            return False
        if isinstance(error, RequestTimedOut) and name == "FindCoordinator":
            return False  # the deadline
        if not isinstance(error, BrokerError):
            if error.retriable:
                return True
            if isinstance(error, NoCommonVersion) and name == "TxnOffsetCommit":
                self._transactions.failed(error)
            else:
                self._transactions.died(error)
            return False
        action, transactions = action_for(name, error.code), self._transactions
        if (
            name == "AddPartitionsToTxn"
            and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            and transactions.state is TransactionState.ABORTING
        ):
            return False  # a topic that was deleted must not keep the rest from its abort
        if name == "FindCoordinator" and action is TransactionErrorAction.ABORT:
            if transactions.end_sent or transactions.state is TransactionState.ABORTING:
                return True  # it is ending, and must have an outcome
        if action is TransactionErrorAction.REDISCOVER and error.node_id is not None:
            coordinator.lost(error.node_id, error)
        if action in (TransactionErrorAction.RETRY, TransactionErrorAction.REDISCOVER):
            return True
        if action is TransactionErrorAction.ABORT_AND_RENEW and not transactions.v2:
            transactions.must_renew = True
            if not transactions.can_renew:
                action = TransactionErrorAction.DIE
        if action is TransactionErrorAction.DIE or last:
            if transactions.end_sent and transactions.end_unanswered:
                error.maybe_written = True
                error.hint = _COMMITTED_OR_NOT
            transactions.died(error)
        else:
            transactions.failed(error, of_end=name == "EndTxn")
        return False


def _error_of(response: Any) -> Iterable[tuple[int, TopicPartition | None]]:
    return [(response.error_code, None)]


def _errors_of_added_partitions(response: Any) -> Iterable[tuple[int, TopicPartition | None]]:
    found = [
        (row.partition_error_code, TopicPartition(topic.name, row.partition_index))
        for topic in response.results_by_topic_v3_and_below
        for row in topic.results_by_partition
    ]
    # Of no use if there is another: it is that other one's fault.
    return sorted(found, key=lambda one: one[0] == ErrorCode.OPERATION_NOT_ATTEMPTED)


class _OffsetsBuilder:
    """Builds TxnOffsetCommit for the version that the group's coordinator speaks."""

    def __init__(
        self,
        transactional_id: str,
        identity: ProducerIdAndEpoch,
        group: GroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        self._id = transactional_id
        self._identity = identity
        self._group = group
        self._offsets = offsets

    def build(self, version: int) -> TxnOffsetCommitRequest:
        """Return the request.

        Raises:
            NoCommonVersion: The broker can't check the member's generation.
        """
        group = self._group
        if version < _FIRST_WITH_GENERATION and group.member_id:
            raise NoCommonVersion(
                f"TxnOffsetCommit v{version} doesn't carry the generation of member "
                f"{group.member_id}: a member that lost its partitions without noticing could "
                f"still commit their offsets",
                hint="brokers check it from Kafka 2.5 on; before, give GroupMetadata(group) alone "
                "and a transactional_id of its own to each partition that is read",
            )
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for (topic, partition), offset in self._offsets.items():
            found = topics.setdefault(topic, TxnOffsetCommitRequestTopic(topic, []))
            epoch = -1 if offset.leader_epoch is None else offset.leader_epoch
            found.partitions.append(
                TxnOffsetCommitRequestPartition(partition, offset.offset, epoch, offset.metadata)
            )
        return TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group.group,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.instance_id,
            topics=list(topics.values()),
        )
