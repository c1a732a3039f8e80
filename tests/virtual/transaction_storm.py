"""One producer's transactions by hand, each call cancelled or cut off at a time by seed.

``storm(seed, version)`` makes a cluster of three brokers, and a few transactions whose calls are
cancelled anywhere and repeated as their docstrings say, while requests are lost, late or refused,
coordinators move and brokers crash. It returns what contradicts what the calls have said: records
that are lost, doubled, or visible though they were aborted, and a producer that can't go on though
no other producer has its transactional id.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import kclient
from kclient import GroupMetadata, KafkaError, TopicPartition
from kclient.testing import Cluster, ErrorCode, run_virtually

NAME, TOPIC, PARTITIONS, ROUNDS, ATTEMPTS = "storm", "t", 3, 5, 15
APIS = (
    "Produce",
    "EndTxn",
    "InitProducerId",
    "TxnOffsetCommit",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "FindCoordinator",
)
_ABORTABLE = ("Produce", "TxnOffsetCommit", "AddPartitionsToTxn", "AddOffsetsToTxn")
_AWAY = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
_CUT = (TimeoutError, KafkaError)


def storm(seed: int, version: int) -> list[str]:
    """Run one; return what was wrong."""
    return run_virtually(_run(seed, version), seed=seed, limit=3000)


async def _run(seed: int, version: int) -> list[str]:
    async with Cluster(brokers=3, transaction_version=version) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
        one = _Storm(cluster, random.Random(seed))
        await one.producer.start()
        for _ in range(ROUNDS):
            if not await one.transaction():
                break
        await one.settle()
        return one.wrong


class _Storm:
    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self.wrong: list[str] = []
        self._cluster, self._rng = cluster, rng
        self._committed: set[bytes] = set()
        self._aborted: set[bytes] = set()
        self._sent: list[bytes] = []
        self._count = 0
        self._background: list[asyncio.Task[None]] = []
        self.producer: kclient.Producer[bytes, bytes] = kclient.Producer(
            cluster.bootstrap,
            transactional_id=NAME,
            client_id=NAME,
            linger=rng.choice((0.0, 0.01)),
            api_timeout=4.0,
            request_timeout=3.0,
            delivery_timeout=4.0,
            transaction_timeout=600.0,
        )

    async def _cut(self, call: Coroutine[Any, Any, Any]) -> Any:
        """Await ``call``; of three one is cancelled after a moment."""
        if self._rng.random() < 0.7:
            return await call
        task = asyncio.create_task(call)
        await asyncio.wait([task], timeout=self._rng.choice((0, 0.001, 0.01, 0.2, 1.0)))
        task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            raise TimeoutError from None

    async def transaction(self) -> bool:
        """Begin, fill and end a transaction; return whether the producer can go on."""
        for _ in range(self._rng.choice((0, 1, 1, 2))):
            self._break()
        txn = self.producer.transaction()
        for _ in range(ATTEMPTS):
            with contextlib.suppress(*_CUT):
                await self._cut(txn.begin(timeout=self._rng.choice((None, 0.5))))
                break
            await asyncio.sleep(2)
        else:
            self.wrong.append(f"no transaction begins: {self.producer.health()}")
            return False
        self._sent = []
        for _ in range(self._rng.randrange(4)):
            await self._send(txn)
        other = asyncio.create_task(self._send(txn)) if self._rng.random() < 0.3 else None
        if self._rng.random() < 0.5:
            offsets = {TopicPartition(TOPIC, 0): self._count}
            with contextlib.suppress(*_CUT):
                timeout = self._rng.choice((None, 0.5))
                group = GroupMetadata("g")
                await self._cut(txn.commit_offsets(group, offsets, timeout=timeout))
        if self._rng.random() < 0.4:
            with contextlib.suppress(*_CUT):
                await self._cut(txn.prepare(timeout=self._rng.choice((None, 1.0))))
        ended = await (self._commit(txn) if self._rng.random() < 0.6 else self._abort(txn))
        if other is not None:
            await other
        if ended is not None:
            (self._committed if ended else self._aborted).update(self._sent)
        if self._rng.random() < 0.5:
            self._cluster.faults.clear()
        return not self.wrong

    async def _send(self, txn: Any) -> None:
        self._count += 1
        value = b"%d" % self._count
        try:
            delivery = txn.send(TOPIC, value, partition=self._rng.randrange(PARTITIONS))
        except KafkaError:
            self._aborted.add(value)
            return
        self._sent.append(value)
        if self._rng.random() < 0.3:
            with contextlib.suppress(*_CUT):  # on Python 3.11 it cancels the delivery
                await asyncio.wait_for(delivery, self._rng.choice((0.0, 0.01, 2.0)))

    async def _abort(self, txn: Any) -> bool | None:
        with contextlib.suppress(*_CUT):
            await self._cut(txn.abort(timeout=self._rng.choice((None, 0.5))))
        return False

    async def _commit(self, txn: Any) -> bool | None:
        """Return whether it is committed; None where an earlier call got the outcome."""
        for _ in range(ATTEMPTS):
            try:
                await self._cut(txn.commit(timeout=self._rng.choice((None, 0.5))))
            except kclient.TransactionAborted:
                return False
            except kclient.WrongTransactionState:
                return None
            except TimeoutError:
                await asyncio.sleep(1)
            except KafkaError as error:
                self.wrong.append(f"commit: {error!r}")
                return None
            else:
                return True
        self.wrong.append(f"a commit has no outcome: {self.producer.health()}")
        return None

    # What breaks

    def _break(self) -> None:
        rng, faults = self._rng, self._cluster.faults
        api, seconds = rng.choice(APIS), rng.choice((0.2, 1.0, 4.5))
        match rng.randrange(8):
            case 0:
                faults.lose_requests(api, client_id=NAME)
            case 1:
                faults.lose_answers(api, client_id=NAME)
            case 2:
                faults.delay(api, seconds, after=True, client_id=NAME)
            case 3:
                faults.delay(api, seconds, client_id=NAME)
            case 4 if api != "Produce":
                faults.error(api, rng.choice(_AWAY), times=rng.choice((1, 3)), client_id=NAME)
            case 5:
                code = ErrorCode.TRANSACTION_ABORTABLE
                faults.error(rng.choice(_ABORTABLE), code, client_id=NAME)
            case 6:
                with contextlib.suppress(KafkaError):  # that broker is down
                    self._cluster.move_transaction_coordinator(NAME, rng.choice((1, 2, 3)))
            case _:
                if all(task.done() for task in self._background):
                    self._background.append(asyncio.create_task(self._crash(rng.choice((1, 2, 3)))))

    async def _crash(self, broker: int) -> None:
        await self._cluster.crash(broker)
        await asyncio.sleep(self._rng.choice((0.5, 3.0)))
        await self._cluster.restart(broker)

    async def settle(self) -> None:
        """Heal, close, and compare the log with what the calls have said."""
        self._cluster.faults.clear()
        await asyncio.gather(*self._background)
        with contextlib.suppress(KafkaError):  # the failure that `wrong` names already
            await self.producer.close()
        await asyncio.sleep(5)
        found: Counter[bytes] = Counter()
        async with kclient.Consumer(
            self._cluster.bootstrap,
            TOPIC,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        ) as consumer:
            while records := await consumer.poll(timeout=3.0):
                found.update(record.value for record in records)
        doubled = sorted(value for value, times in found.items() if times > 1)
        for what, values in (
            ("lost", sorted(self._committed - found.keys())),
            ("aborted, but visible", sorted(self._aborted & found.keys())),
            ("doubled", doubled),
        ):
            if values:
                self.wrong.append(f"{what}: {values}")
