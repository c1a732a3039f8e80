"""``send_many``: many records with one await per batch.

A run of its own per call; the producer makes it. Records go through the intake one by one, without
a suspension as long as they fit; every batch that takes one of them is watched, and at the end the
acknowledgements of all are awaited.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Iterable
from typing import TYPE_CHECKING, Any

from kclient.errors import InvalidArgument
from kclient.producer.flush import FlushWait
from kclient.producer.outgoing import Outgoing
from kclient.producer.parking import Parked
from kclient.producer.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from kclient.producer.accumulator import Accumulator
    from kclient.producer.delivery import BatchOutcome, Delivery
    from kclient.producer.intake import Intake

_LOOK_EVERY = 8
"""Records between two looks at the clock at most: a look costs an eighth of taking a record."""


class BulkSend:
    """One call of ``send_many``.

    Attributes:
        taken: Records taken so far.
        wait: What became of their batches.
    """

    __slots__ = (
        "_accumulator",
        "_admission",
        "_check",
        "_intake",
        "_seen",
        "_topic",
        "_turns",
        "taken",
        "wait",
    )

    def __init__(
        self,
        topic: str,
        intake: Intake,
        accumulator: Accumulator,
        admission: Callable[[], asyncio.Future[None]],
        check: Callable[[], None],
    ) -> None:
        self.taken = 0
        self.wait = FlushWait(urgent=False)
        self._topic = topic
        self._intake = intake
        self._accumulator = accumulator
        self._admission = admission
        self._check = check
        self._seen: set[BatchOutcome] = set()
        self._turns = Turns(accumulator)

    async def run(self, records: Iterable[Any] | AsyncIterable[Any]) -> None:
        """Take all records; stops early when one of the batches has failed."""
        if isinstance(records, AsyncIterable):
            async for item in records:
                await self._take(item)
                if self.wait.tally.count:
                    return
        elif isinstance(records, Iterable) and not isinstance(records, (str, bytes, bytearray)):
            await self._take_all(records)
        else:
            raise InvalidArgument(
                f"records must be an iterable or async iterable, not a {type(records).__name__}"
            )

    async def _take_all(self, records: Iterable[Any]) -> None:
        seen, turns, accumulator = self._seen, self._turns, self._accumulator
        sealed, look_every, look_in = accumulator.sealed_count, 1, 1
        for item in records:
            delivery = self._put(item)
            self.taken += 1
            if delivery._outcome not in seen:
                await self._watch(delivery)
            look_in -= 1
            if look_in and accumulator.sealed_count == sealed:
                continue
            if turns.due():
                look_every = 1  # the records may come slowly
                seen.clear()
                # Acknowledgements and linger need the loop, too.
                await turns.take()
                sealed = accumulator.sealed_count
                self._check()
                if self.wait.tally.count:
                    return
            elif look_every < _LOOK_EVERY:
                look_every *= 2
            look_in = look_every

    async def _take(self, item: Any) -> None:
        await self._take_all((item,))

    def _put(self, item: Any) -> Delivery:
        put, topic = self._intake.put, self._topic
        kind = item.__class__
        if kind is Outgoing:
            return put(
                topic,
                item.value,
                item.key,
                item.headers,
                item.partition,
                item.timestamp,
                self._admission,
            )
        if kind is tuple:
            if len(item) != 2:
                raise InvalidArgument(
                    f"a tuple in records must be (key, value), this one has {len(item)} items: "
                    "use kclient.producer.Outgoing for more"
                )
            return put(topic, item[1], item[0], None, None, None, self._admission)
        return put(topic, item, None, None, None, None, self._admission)

    async def _watch(self, delivery: Delivery) -> None:
        """Have ``wait`` told about the record's batch, once it is in one."""
        parked = delivery._outcome
        if isinstance(parked, Parked):
            parked.watch(self.wait)  # goes over to the batch that takes the record
            await admission(parked, delivery)
        else:
            batch = self._accumulator.batch_of(parked)
            if batch is not None:
                batch.watch(self.wait)
        self._seen.add(delivery._outcome)


async def admission(parked: Parked, delivery: Delivery) -> None:
    """Wait until ``parked``, whose handle is ``delivery``, is in a batch.

    Raises:
        KafkaError: It was given up instead.

    Cancellation: it is taken back, unless it got into a batch in the same instant.
    """
    waiter = parked.waiter
    if waiter is not None:
        try:
            await waiter
        except asyncio.CancelledError:
            delivery.cancel()
            raise
    if parked.error is not None:
        raise parked.error
