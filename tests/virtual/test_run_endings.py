"""Runs that end, and partitions that go: drained in time, and nothing unfinished is committed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from kclient.consumer.handlers.retries import Retries
from kclient.errors import BackgroundTaskDied
from kclient.record import Record
from kclient.testing import run_virtually
from kclient.types import TopicPartition
from tests.virtual.running_rig import PlainHost, Run, Sent, leftovers, plan, record

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Steps:
    """A handler that takes some seconds, and what became of each call."""

    def __init__(self, host: PlainHost, seconds: float) -> None:
        self.host = host
        self.seconds = seconds
        self.cancelled: list[tuple[int, int]] = []
        self.begun: list[tuple[int, int]] = []

    async def __call__(self, one: Record) -> None:
        self.begun.append((one.partition, one.offset))
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cancelled.append((one.partition, one.offset))
            raise
        self.host.note(one)


def two_partitions(count: int = 10) -> PlainHost:
    return PlainHost([record(p, o, b"%d" % (o % 3)) for p in (0, 1) for o in range(count)])


def test_a_partition_that_is_taken_is_drained_and_committed_while_the_other_goes_on() -> None:
    async def main() -> None:
        host = two_partitions()
        steps = Steps(host, 2.0)
        async with Run(host, steps):
            await asyncio.sleep(3)
            begun = host.clock.now()
            await host.revoke(T0)
            assert host.clock.now() - begun == pytest.approx(1.0)
            assert host.committed[T0] == 2
            assert (0, 2) not in steps.begun
            await asyncio.sleep(20)
            assert host.finished[T1] == set(range(10))
            host.give(T0)
            await host.caught_up()
        assert steps.cancelled == []
        assert Counter(steps.begun).most_common(1)[0][1] == 1

    run_virtually(main())


def test_handlers_that_outlast_the_drain_are_cancelled_and_not_committed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        host = two_partitions()
        steps = Steps(host, 50.0)
        async with Run(host, steps, plan(drain_timeout=10.0)):
            await asyncio.sleep(55)
            begun = host.clock.now()
            await host.revoke(T0)
            assert 8 <= host.clock.now() - begun <= 10
            assert steps.cancelled == [(0, 1)]
            assert host.committed[T0] == 1
            host.give(T0)
            await host.caught_up()
        assert steps.begun.count((0, 1)) == 2

    run_virtually(main())
    assert any("handlers are cancelled" in text for text in caplog.messages)


def test_a_deadline_of_the_group_comes_before_the_drain_timeout() -> None:
    async def main() -> None:
        host = two_partitions()
        async with Run(host, Steps(host, 500.0), plan(drain_timeout=100.0)):
            await asyncio.sleep(1)
            begun = host.clock.now()
            await host.revoke(T0, 5.0)
            assert host.clock.now() - begun <= 5.0

    run_virtually(main())


def test_a_handler_that_does_not_let_itself_be_cancelled_does_not_hold_up_the_group() -> None:
    async def main() -> None:
        host = two_partitions(2)

        async def handler(one: Record) -> None:
            for _ in range(40):
                try:
                    await asyncio.sleep(1)
                except asyncio.CancelledError:
                    pass
            host.note(one)

        async with Run(host, handler, plan(drain_timeout=10.0)) as run:
            await asyncio.sleep(1)
            begun = host.clock.now()
            await host.revoke(T0)
            assert host.clock.now() - begun <= 11.0
            assert not host.committed.get(T0)
            host.give(T0)
            await asyncio.sleep(3)
            assert run.runner.health().running <= 4  # it counts as long as it runs
            await host.caught_up()
            host.commit_nowait()
            await asyncio.sleep(60)

    run_virtually(main())


def test_lost_partitions_are_released_at_once() -> None:
    async def main() -> None:
        host = two_partitions()
        steps = Steps(host, 10.0)
        async with Run(host, steps) as run:
            await asyncio.sleep(15)
            host.commit_nowait()
            host.lose(T0)
            await asyncio.sleep(0)
            assert steps.cancelled == [(0, 1)]
            assert run.runner.health().in_flight <= 10
            host.give(T0)
            await host.caught_up()
        assert steps.begun.count((0, 0)) == 1
        assert steps.begun.count((0, 1)) == 2

    run_virtually(main())


def test_a_drain_that_is_cancelled_leaves_nothing_half_done() -> None:
    async def main() -> None:
        host = two_partitions()
        steps = Steps(host, 10.0)
        async with Run(host, steps) as run:
            await asyncio.sleep(15)
            drain = asyncio.create_task(run.runner.drain([T0], host.clock.now() + 60))
            await asyncio.sleep(1)
            drain.cancel()
            await asyncio.wait([drain])
            await host.caught_up()
            host.commit_nowait()
            assert host.committed == {T0: 10, T1: 10}

    run_virtually(main())


def test_a_consumer_that_is_closed_at_once_has_its_handlers_cancelled() -> None:
    async def main() -> None:
        host = two_partitions()
        steps = Steps(host, 20.0)
        async with Run(host, steps) as run:
            await asyncio.sleep(3)
            host.close()
            assert await run.result() is None
        assert len(steps.cancelled) == 2
        assert leftovers() == []

    run_virtually(main())


def test_a_client_that_fails_ends_the_run_with_its_error() -> None:
    async def main() -> None:
        host = two_partitions()
        async with Run(host, Steps(host, 20.0)) as run:
            await asyncio.sleep(3)
            host.core.ended = BackgroundTaskDied("a task died")
            for task in tuple(host.core.tasks):
                task.cancel()  # as the supervisor does
            assert await run.result() is host.core.ended
        assert leftovers() == []

    run_virtually(main())


def test_a_worker_that_is_killed_is_replaced_and_its_record_tried_again() -> None:
    async def main() -> None:
        host = two_partitions()
        steps = Steps(host, 2.0)
        async with Run(host, steps, plan(1)) as run:
            await asyncio.sleep(3)
            names = {task.get_name(): task for task in asyncio.all_tasks()}
            victim = names["kclient:handler-1"]
            victim.cancel()
            await asyncio.sleep(0.1)
            assert run.runner.health().running == 1  # another one, at another record
            await host.caught_up()
            assert run.runner.health().failures <= 1

    run_virtually(main())


def test_a_cancelled_run_leaves_a_consumer_that_stands_at_what_is_not_finished() -> None:
    async def main() -> None:
        host = two_partitions()
        steps = Steps(host, 2.0)
        async with Run(host, steps) as run:
            await asyncio.sleep(5)
            assert run.task is not None
            run.task.cancel()
            assert isinstance(await run.result(), asyncio.CancelledError)
            assert host.processed is None
            assert host.committed == {T0: 2, T1: 2} == host.positions
            assert host.paused == set()
            assert leftovers() == []
        async with Run(host, steps):  # and can be used again
            host.core.ended = None
            await host.caught_up()

    run_virtually(main())


async def cut_run(at: int) -> int:
    """A run that is cancelled at its caller's ``at``-th step of the loop. How many there were."""
    host = PlainHost([record(p, o, b"%d" % (o % 3)) for p in (0, 1) for o in range(12)], seed=at)
    failed: set[tuple[int, int]] = set()

    async def handler(one: Record) -> None:
        if one.offset % 4 == 1:
            await asyncio.sleep(0)
        if one.offset % 5 == 2 and (one.partition, one.offset) not in failed:
            failed.add((one.partition, one.offset))
            raise ValueError("no good")
        if one.offset == 7:
            raise ValueError("never any good")
        await asyncio.sleep(0.01)
        host.note(one)

    sent = Sent()
    retries = Retries(max_attempts=2, backoff=0.02, jitter=0.0)
    wanted = plan(3, "key", retries, dead_letter_topic="d", max_in_flight=8)

    def dead() -> None:
        for _, value, _, _ in sent.records:
            host.finished.setdefault(TopicPartition("t", int((value or b"")[:1])), set()).add(7)

    steps = 0
    async with Run(host, handler, wanted, sent) as run:
        assert run.task is not None
        while steps < at and host.unfinished():
            await asyncio.sleep(0 if steps % 3 else 0.003)
            dead()
            steps += 1
        run.task.cancel()
        dead()
        result = await run.result()
        dead()
        assert isinstance(result, asyncio.CancelledError)
        assert leftovers() == []
        assert host.processed is None
        for partition, position in host.positions.items():
            first = min(set(range(12)) - host.finished.get(partition, set()), default=12)
            assert position <= first  # nothing is skipped
            assert host.committed.get(partition, 0) <= first
    host.core.ended = None
    async with Run(host, handler, wanted, sent):
        while host.unfinished():
            await asyncio.sleep(0.01)
            dead()
    return steps


def test_a_run_may_be_cancelled_at_any_moment() -> None:
    at = tried = 0
    while True:
        steps = run_virtually(cut_run(at), seed=at)
        tried += 1
        if steps < at:
            break
        at += 1
    assert tried > 60


def test_a_second_cancellation_while_handlers_end_still_gives_everything_back() -> None:
    async def main() -> None:
        host = two_partitions()

        async def handler(one: Record) -> None:
            try:
                await asyncio.sleep(10)
            finally:
                await asyncio.sleep(3)
            host.note(one)

        async with Run(host, handler) as run:
            await asyncio.sleep(1)
            assert run.task is not None
            run.task.cancel()
            await asyncio.sleep(1)
            run.task.cancel()
            assert isinstance(await run.result(), asyncio.CancelledError)
            assert host.processed is None
            assert host.positions == {T0: 0, T1: 0}
            await asyncio.sleep(5)
            assert leftovers() == []

    run_virtually(main())


class Storm:
    """Random durations, failures and rebalances; judges order, counts and commits."""

    def __init__(self, seed: int, ordering: str) -> None:
        self.rng = rng = random.Random(seed)
        self.ordering = ordering
        records: list[Record] = []
        for partition in range(rng.randrange(1, 6)):
            offset = 0
            for _ in range(rng.randrange(5, 60)):
                key = rng.choice([None, b"a", b"b", b"c", b"d"])
                records.append(record(partition, offset, key))
                offset += rng.choice([1, 1, 1, 2, 7])
        self.host = PlainHost(records, seed=seed)
        self.concurrency = rng.randrange(1, 9)
        self.running: list[Record] = []
        self.trouble: list[str] = []

    def line(self, one: Record) -> object:
        key = one.key if self.ordering == "key" else None
        return (one.partition, key) if self.ordering != "none" else (one.partition, one.offset)

    async def __call__(self, one: Record) -> None:
        line = self.line(one)
        if any(self.line(other) == line for other in self.running):
            self.trouble.append(f"two of a line at once: {one}")
        self.running.append(one)
        if len(self.running) > self.concurrency:
            self.trouble.append(f"{len(self.running)} at once")
        try:
            before = {
                other.offset
                for other in self.host.logs[one.topic_partition]
                if other.offset < one.offset and self.line(other) == line
            }
            if before - self.host.finished.get(one.topic_partition, set()):
                self.trouble.append(f"one before it in its line isn't finished: {one}")
            if self.rng.random() < 0.7:
                await asyncio.sleep(self.rng.choice([0, 0.01, 0.5, 3.0]))
            if self.rng.random() < 0.1:
                raise ValueError("this time")
            self.host.note(one)
        finally:
            self.running.remove(one)

    async def rebalance(self) -> None:
        host, rng = self.host, self.rng
        for _ in range(rng.randrange(0, 12)):
            await asyncio.sleep(rng.uniform(0, 3))
            host.commit_nowait()
            partition = rng.choice(sorted(host.logs))
            if partition not in host.positions:
                host.give(partition)
            elif rng.random() < 0.6:
                await host.revoke(partition, rng.choice([0.2, 2.0, 60.0]))
            else:
                host.lose(partition)
        for partition in host.logs:
            if partition not in host.positions:
                host.give(partition)

    async def run(self) -> None:
        host, rng = self.host, self.rng
        wanted = plan(
            self.concurrency,
            self.ordering,
            Retries(max_attempts=None, backoff=0.1, max_backoff=2.0),
            max_in_flight=rng.choice([None, 1, 3, 20]),
            drain_timeout=rng.choice([0.0, 1.0, 30.0]),
        )
        async with Run(host, self, wanted) as run:
            await self.rebalance()
            async with asyncio.timeout(3_000):
                await host.caught_up()
                while run.runner.health().in_flight:  # noqa: ASYNC110 (some come again)
                    await asyncio.sleep(1)
            host.commit_nowait()
            assert not self.trouble
            for partition, log in host.logs.items():
                assert host.committed[partition] == log[-1].offset + 1
            assert run.runner.health().in_flight == 0
            assert host.longest_gap <= 2.0
        assert leftovers() == []


@pytest.mark.parametrize("ordering", ["partition", "key", "none"])
def test_in_any_storm_order_holds_nothing_is_skipped_and_commits_stay_behind(
    ordering: str,
) -> None:
    for seed in range(150):
        run_virtually(Storm(seed, ordering).run(), seed=seed)
