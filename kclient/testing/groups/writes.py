"""``Writes``: appends of a shard, until they are committed or have failed.

Used by ``Shard`` only. An append may be completed at once or, with replication, later; appended
writes are committed in order. One that takes too long fails for its requester, and may still be
committed. Failures get the codes that Kafka's coordinator maps them to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from kclient.error_codes import ErrorCode
from kclient.testing.broker_configs import GroupSettings
from kclient.testing.coordinator import code_for_client
from kclient.testing.groups.rebalances import Write
from kclient.testing.groups.records import Record, encode_batch
from kclient.testing.timers import DeadlineQueue, Moment

Append: TypeAlias = Callable[[bytes, Callable[[ErrorCode, Moment], None]], None]
"""Appends a batch; calls back, at once or later, when it is committed, or with the error."""
Apply: TypeAlias = Callable[[Record, int], None]
"""Applies a record, of a transaction if the producer id isn't -1."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A write without outcome, or one that timed out for its requester and may still succeed."""

    number: int
    write: Write
    answered: bool = False


class Writes:
    """Writes of one shard.

    Args:
        append: To the log.
        deadlines: For writes that take too long.
        appended: Called with each record once the log has it.
        committed: Called with each record once it is committed.
        settings: For the timeout.
    """

    def __init__(
        self,
        append: Append,
        deadlines: DeadlineQueue,
        appended: Apply,
        committed: Apply,
        settings: GroupSettings,
    ) -> None:
        self._append = append
        self._deadlines = deadlines
        self._appended = appended
        self._committed = committed
        self._timeout = settings.commit_timeout_ms / 1000
        self._waiting: dict[int, _Waiting] = {}
        self._count = 0

    def perform(self, write: Write | None, moment: Moment) -> None:
        """Execute a write; one without records waits for those before it."""
        if write is None:
            return
        self._count += 1
        waiting = _Waiting(self._count, write)
        if not write.records:
            self._keep(waiting, moment)
            self._settle(moment)
            return
        fate: list[tuple[ErrorCode, Moment]] = []
        later: list[bool] = []

        def ended(code: ErrorCode, then: Moment) -> None:
            if later:
                self._end(waiting, code, then)
            else:
                fate.append((code, then))

        batch = encode_batch(write.records, moment.wall_ms, write.producer)
        self._append(batch, ended)
        later.append(True)
        if fate and fate[0][0] is not ErrorCode.NONE:
            self._answer(waiting, *fate[0])
            return
        if write.replay:
            for record in write.records:
                self._appended(record, write.producer_id)
        if fate:
            self._commit(waiting, fate[0][1])
        else:
            self._keep(waiting, moment)

    def abandon(self, code: ErrorCode, moment: Moment) -> None:
        """Fail all pending writes: this broker doesn't lead the partition any more."""
        waiting, self._waiting = tuple(self._waiting.values()), {}
        for one in waiting:
            self._answer(one, code, moment)

    def _keep(self, waiting: _Waiting, moment: Moment) -> None:
        self._waiting[waiting.number] = waiting
        self._deadlines.set(
            self._key(waiting),
            moment.now + self._timeout,
            lambda then: self._answer(waiting, ErrorCode.REQUEST_TIMED_OUT, then),
        )

    def _key(self, waiting: _Waiting) -> tuple[str, ...]:
        return ("write", f"{id(self):x}", str(waiting.number))

    def _end(self, waiting: _Waiting, code: ErrorCode, moment: Moment) -> None:
        if self._waiting.pop(waiting.number, None) is None:
            return
        if code is ErrorCode.NONE:
            self._commit(waiting, moment)
        else:
            self._answer(waiting, code, moment)
        self._settle(moment)

    def _commit(self, waiting: _Waiting, moment: Moment) -> None:
        if waiting.write.replay:
            for record in waiting.write.records:
                self._committed(record, waiting.write.producer_id)
        self._answer(waiting, ErrorCode.NONE, moment)

    def _settle(self, moment: Moment) -> None:
        """Complete writes without records that have no earlier write to wait for."""
        while self._waiting:
            first = next(iter(self._waiting.values()))
            if first.write.records:
                return
            del self._waiting[first.number]
            self._answer(first, ErrorCode.NONE, moment)

    def _answer(self, waiting: _Waiting, code: ErrorCode, moment: Moment) -> None:
        self._deadlines.cancel(self._key(waiting))
        if waiting.answered:
            return
        waiting.answered = True
        if waiting.write.done is not None:
            waiting.write.done(code_for_client(code), moment)
