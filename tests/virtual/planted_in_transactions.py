"""Bugs planted into transactions, client and coordinator, to show that ``ProcessWatch`` sees them.

Each is a function that changes one rule through a ``MonkeyPatch``: a marker is lost or has another
result, an epoch isn't raised or checked, offsets are committed too early or too late, a reader goes
on at the wrong place. ``test_planted_in_transactions`` runs seeds of ``process_run`` with one bug
at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from kclient import process
from kclient.producer.flush import Flusher
from kclient.testing.groups import offsets
from kclient.testing.groups.offsets import Offsets
from kclient.testing.groups.shard import Shard
from kclient.testing.log_state import ProducerStates
from kclient.testing.timers import Moment
from kclient.testing.transactions import metadata as rules
from kclient.testing.transactions.coordinator import TransactionShard
from kclient.testing.transactions.markers import MarkerWriter
from kclient.testing.transactions.metadata import (
    ProducerIdentity,
    TransactionMetadata,
    TransactionState,
)
from kclient.testing.transactions.verification import Logs, TransactionVerifier, Verified

process_module: Any = __import__("sys").modules[process.__module__]


# The coordinator of transactions, and its markers


def a_marker_is_lost(patch: pytest.MonkeyPatch) -> None:
    """A leader that doesn't respond is taken to have written its markers."""
    answered = MarkerWriter._answered

    def planted(self: MarkerWriter, ending: Any, partitions: list[Any], response: Any) -> None:
        if response is None:
            ending.entry.unmarked -= set(partitions)
        answered(self, ending, partitions, response)

    patch.setattr(MarkerWriter, "_answered", planted)


def one_partition_gets_an_abort_marker(patch: pytest.MonkeyPatch) -> None:
    """What the first leader commits is aborted by the others, and where it is sent again."""
    request = MarkerWriter._request

    def planted(self: MarkerWriter, ending: Any, partitions: list[Any]) -> Any:
        made = request(self, ending, partitions)
        if ending.__dict__.setdefault("first", partitions) is not partitions:
            made.markers[0].transaction_result = False
        return made

    patch.setattr(MarkerWriter, "_request", planted)


def a_new_coordinator_forgets_the_decision(patch: pytest.MonkeyPatch) -> None:
    """What its predecessor had decided to commit, and not marked yet, it aborts."""
    load = TransactionShard.load

    def planted(self: TransactionShard, batches: Iterable[bytes], moment: Moment) -> None:
        write = self._write_markers

        def aborted(entry: Any, then: Moment) -> TransactionMetadata:
            entry.metadata = replace(entry.metadata, state=TransactionState.PREPARE_ABORT)
            return write(entry, then)

        self._write_markers = aborted  # type: ignore[method-assign]
        load(self, batches, moment)
        del self._write_markers

    patch.setattr(TransactionShard, "load", planted)


def a_new_producer_gets_the_same_epoch(patch: pytest.MonkeyPatch) -> None:
    """InitProducerId fences no producer."""

    next_epoch = rules._next_epoch

    def planted(metadata: TransactionMetadata, known: int | None) -> tuple[int, int]:
        if known is None and metadata.epoch >= 0:
            return metadata.epoch, rules.NO_EPOCH
        return next_epoch(metadata, known)

    patch.setattr(rules, "_next_epoch", planted)


# Leaders


def a_late_marker_is_accepted(patch: pytest.MonkeyPatch) -> None:
    """A marker of an older epoch ends the next transaction."""
    patch.setattr(ProducerStates, "check_marker", lambda *_, **__: None)


def an_old_epoch_is_accepted(patch: pytest.MonkeyPatch) -> None:
    """The coordinator doesn't compare the epochs of those that add and end."""

    def planted(metadata: TransactionMetadata, producer: ProducerIdentity) -> None:
        return None

    patch.setattr(rules, "_check_producer", planted)


def a_refusal_of_the_coordinator_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """Leaders append whatever came of the verification, so also after the end."""
    verify = TransactionVerifier.verify

    def planted(
        self: TransactionVerifier, caller: Any, logs: Logs, done: Callable[[Verified], None]
    ) -> None:
        def without(outcome: Verified) -> None:
            outcome.codes.clear()
            done(outcome)

        verify(self, caller, logs, without)

    patch.setattr(TransactionVerifier, "verify", planted)


# Offsets


def offsets_are_committed_outside_of_the_transaction(patch: pytest.MonkeyPatch) -> None:
    """TxnOffsetCommit takes effect at once."""
    commit = Shard.commit

    def planted(self: Shard, request: offsets.CommitRequest, *args: Any) -> None:
        commit(self, request._replace(producer=None), *args)

    patch.setattr(Shard, "commit", planted)


def an_abort_applies_the_offsets(patch: pytest.MonkeyPatch) -> None:
    """Pending offsets count, however the transaction ends."""
    end = Offsets.end

    def planted(self: Offsets, producer_id: int, committed: bool) -> None:
        end(self, producer_id, True)

    patch.setattr(Offsets, "end", planted)


def a_new_group_coordinator_forgets_pending_offsets(patch: pytest.MonkeyPatch) -> None:
    """It takes over between TxnOffsetCommit and the marker: the commit drops the offsets."""
    load = Shard.load

    def planted(self: Shard, *args: Any) -> None:
        load(self, *args)
        self.offsets._pending.clear()

    patch.setattr(Shard, "load", planted)


def a_former_member_commits_offsets(patch: pytest.MonkeyPatch) -> None:
    """The generation of the member isn't compared (KIP-447)."""
    patch.setattr(offsets, "check_commit", lambda group, request: None)


def pending_offsets_are_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    """The next owner begins where the open transaction of the last one began."""
    patch.setattr(Offsets, "pending", lambda self, group_id: set())


# The client


def an_abort_does_not_rewind(patch: pytest.MonkeyPatch) -> None:
    """After an abort the consumer goes on behind the records of the transaction."""

    async def planted(self: Any, timeout: float | None = None) -> None:
        process_module._UNCOMMITTED.pop(self._consumer, None)

    patch.setattr(process_module._Loop, "_go_back", planted)


def a_commit_overtakes_its_records(patch: pytest.MonkeyPatch) -> None:
    """EndTxn is sent while records are on their way, or wait."""

    async def planted(self: Flusher) -> None:
        return None

    patch.setattr(Flusher, "settle", planted)


BUGS = (
    a_marker_is_lost,
    one_partition_gets_an_abort_marker,
    a_new_coordinator_forgets_the_decision,
    a_new_producer_gets_the_same_epoch,
    a_late_marker_is_accepted,
    an_old_epoch_is_accepted,
    a_refusal_of_the_coordinator_is_ignored,
    offsets_are_committed_outside_of_the_transaction,
    an_abort_applies_the_offsets,
    a_new_group_coordinator_forgets_pending_offsets,
    a_former_member_commits_offsets,
    pending_offsets_are_not_waited_for,
    an_abort_does_not_rewind,
    a_commit_overtakes_its_records,
)
