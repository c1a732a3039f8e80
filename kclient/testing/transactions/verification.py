"""``TransactionVerifier``: a leader asks the coordinator before a transaction's first append.

In version 1 of the protocol the producer has added the partition, which the leader has confirmed;
in version 2 it is the leader that adds it (KIP-890). So nothing is appended to a transaction that
has ended. A log that has records of the open transaction needs no confirmation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kclient.testing.log import PartitionLog
from kclient.testing.log_state import BatchStart, ProducerIdentity, Verification
from kclient.testing.responses import ApiError
from kclient.testing.transactions.metadata import Partition, by_topic

if TYPE_CHECKING:
    from kclient.testing.broker import Broker

VERSION = 5


@dataclass(frozen=True, slots=True)
class Caller:
    """The producer that writes, and what its version of the API makes possible.

    Attributes:
        adds: The partitions are to be added: the producer doesn't do that itself.
        knows_abortable: It knows TRANSACTION_ABORTABLE; else it gets INVALID_TXN_STATE.
        is_patient: CONCURRENT_TRANSACTIONS is worth another attempt for a while.
    """

    transactional_id: str
    producer: ProducerIdentity
    adds: bool
    knows_abortable: bool
    is_patient: bool = False


@dataclass(slots=True, eq=False)
class Verified:
    """The outcome: a code for each partition that was refused, and what the others waited for."""

    codes: dict[Partition, ErrorCode] = field(default_factory=dict)
    verifications: dict[Partition, Verification] = field(default_factory=dict)

    def check(self, partition: Partition, log: PartitionLog, first: BatchStart) -> None:
        """Raise ApiError unless the batch may be appended to its transaction now."""
        code = self.codes.get(partition)
        if code is not None:
            raise ApiError(code)
        if log.has_transaction(first.producer_id, first.epoch):
            return
        log.producers.check_epoch(first.producer_id, first.epoch)
        verification = self.verifications.get(partition)
        if verification is None or not log.producers.is_verified(first.producer_id, verification):
            raise ApiError(ErrorCode.INVALID_TXN_STATE)


Logs: TypeAlias = Mapping[Partition, tuple[PartitionLog, BatchStart]]


class TransactionVerifier:
    """The questions of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def verify(self, caller: Caller, logs: Logs, done: Callable[[Verified], None]) -> None:
        """Verify, or add, what needs it; call ``done`` at once if nothing does, or later."""
        self._attempt(caller, logs, done, self._broker.now())

    def _attempt(
        self, caller: Caller, logs: Logs, done: Callable[[Verified], None], since: float
    ) -> None:
        outcome = Verified()
        for partition, (log, first) in logs.items():
            if log.has_transaction(first.producer_id, first.epoch):
                continue
            try:
                outcome.verifications[partition] = log.producers.begin_verification(
                    first, adds=caller.adds
                )
            except ApiError as refused:
                outcome.codes[partition] = refused.code
        if not outcome.verifications:
            done(outcome)
            return

        def answered(codes: Mapping[Partition, ErrorCode]) -> None:
            config = self._broker.config
            concurrent = ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
            spent = self._broker.now() - since
            if concurrent and caller.is_patient and spent < config.verification_timeout:
                self._broker.call_later(
                    config.verification_backoff, lambda: self._again(caller, logs, done, since)
                )
                return
            outcome.codes.update(codes)
            done(outcome)

        self._ask(caller, list(outcome.verifications), answered)

    def _again(
        self, caller: Caller, logs: Logs, done: Callable[[Verified], None], since: float
    ) -> None:
        if self._broker.running:
            self._attempt(caller, logs, done, since)

    def _ask(
        self,
        caller: Caller,
        partitions: list[Partition],
        answered: Callable[[Mapping[Partition, ErrorCode]], None],
    ) -> None:
        coordinator = self._broker.transactions.find(caller.transactional_id)
        if coordinator is None:
            answered(dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return

        def came(response: AddPartitionsToTxnResponse | None) -> None:
            if response is None:
                answered(dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION))
            else:
                answered(dict(_refusals(response, caller, partitions)))

        self._broker.peers.call(
            coordinator.node_id,
            _request(caller, partitions),
            VERSION,
            AddPartitionsToTxnResponse,
            came,
        )


def _request(caller: Caller, partitions: list[Partition]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        [
            AddPartitionsToTxnTransaction(
                caller.transactional_id,
                *caller.producer,
                not caller.adds,
                [AddPartitionsToTxnTopic(*one) for one in by_topic(partitions).items()],
            )
        ]
    )


def _refusals(
    response: AddPartitionsToTxnResponse, caller: Caller, partitions: list[Partition]
) -> Iterator[tuple[Partition, ErrorCode]]:
    """The partitions that were refused, with the codes that producers expect."""
    if response.error_code:
        for one in partitions:
            yield one, ErrorCode(response.error_code)
        return
    for transaction in response.results_by_transaction:
        for topic in transaction.topic_results:
            for part in topic.results_by_partition:
                code = ErrorCode(part.partition_error_code)
                if code is ErrorCode.PRODUCER_FENCED:
                    code = ErrorCode.INVALID_PRODUCER_EPOCH
                elif code is ErrorCode.TRANSACTION_ABORTABLE and not caller.knows_abortable:
                    code = ErrorCode.INVALID_TXN_STATE
                if code is not ErrorCode.NONE:
                    yield (topic.name, part.partition_index), code
