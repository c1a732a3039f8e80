"""Handlers on virtual time: which run when, what is committed, what becomes of failures."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

from kclient.errors import InvalidArgument, NoPosition, RequestTimedOut
from kclient.record import Record
from kclient.testing import run_virtually
from kclient.types import TopicPartition
from tests.virtual.running_rig import PlainHost, Run, leftovers, plan, record

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def keyed(count: int, keys: int) -> list[Record]:
    return [record(0, offset, b"%d" % (offset % keys)) for offset in range(count)]


class Watch:
    """A handler that takes a second, and what was seen of it."""

    def __init__(self, host: PlainHost, seconds: float = 1.0) -> None:
        self.host = host
        self.seconds = seconds
        self.running: list[Record] = []
        self.most = 0
        self.order: list[Record] = []

    async def __call__(self, one: Record) -> None:
        self.running.append(one)
        self.order.append(one)
        self.most = max(self.most, len(self.running))
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.running.remove(one)
        self.host.note(one)


@pytest.mark.parametrize(
    ("ordering", "seconds", "most"), [("partition", 8, 2), ("key", 2, 8), ("none", 2, 8)]
)
def test_as_many_run_at_once_as_the_order_allows(ordering: str, seconds: int, most: int) -> None:
    async def main() -> None:
        records = [record(p, o, b"%d" % (o % 4)) for p in (0, 1) for o in range(8)]
        host = PlainHost(records)
        watch = Watch(host)
        begun = host.clock.now()
        async with Run(host, watch, plan(8, ordering)):
            await host.caught_up()
            assert watch.most == most
            assert seconds <= host.clock.now() - begun < seconds + 0.1
            host.commit_nowait()
            assert host.committed == {T0: 8, T1: 8}
        assert leftovers() == []

    run_virtually(main())


def test_never_more_than_concurrency_run() -> None:
    async def main() -> None:
        host = PlainHost(keyed(100, 50))
        watch = Watch(host)
        async with Run(host, watch, plan(3, "none")):
            await host.caught_up()
        assert watch.most == 3

    run_virtually(main())


def test_what_is_committed_stops_at_the_first_that_is_not_finished() -> None:
    async def main() -> None:
        host = PlainHost(keyed(10, 10))
        free = asyncio.Event()

        async def handler(one: Record) -> None:
            if one.offset == 4:
                await free.wait()
            host.note(one)

        async with Run(host, handler, plan(4, "key")):
            await asyncio.sleep(1)
            assert host.unfinished() == 1
            host.commit_nowait()
            assert host.committed == {T0: 4}
            free.set()
            await asyncio.sleep(1)
            host.commit_nowait()
            assert host.committed == {T0: 10}

    run_virtually(main())


def test_a_handler_that_waits_for_nothing_takes_no_loop_iteration_each() -> None:
    async def main() -> None:
        host = PlainHost(keyed(1_000, 10))
        seen: list[int] = []
        tasks: set[Any] = set()

        async def handler(one: Record) -> None:
            seen.append(one.offset)
            tasks.add(asyncio.current_task())
            host.note(one)

        async with Run(host, handler, plan(64, "key")):
            await host.caught_up()
        assert seen == list(range(1_000))
        assert len(tasks) == 1  # more workers are made only where one waits

    run_virtually(main())


def test_what_a_handler_sets_in_context_variables_is_not_seen_by_the_next_one() -> None:
    trace: contextvars.ContextVar[str] = contextvars.ContextVar("trace", default="none")

    async def main() -> None:
        host = PlainHost(keyed(4, 1))
        seen: list[str] = []

        async def handler(one: Record) -> None:
            seen.append(trace.get())
            trace.set(str(one.offset))
            await asyncio.sleep(1)
            seen.append(trace.get())
            host.note(one)

        trace.set("the caller's")
        async with Run(host, handler):
            await host.caught_up()
        assert seen[::2] == ["the caller's"] * 4
        assert seen[1::2] == ["0", "1", "2", "3"]

    run_virtually(main())


def test_timeouts_and_task_groups_work_inside_of_a_handler() -> None:
    async def main() -> None:
        host = PlainHost(keyed(3, 3))
        late: list[int] = []

        async def handler(one: Record) -> None:
            try:
                async with asyncio.timeout(2):
                    async with asyncio.TaskGroup() as group:
                        group.create_task(asyncio.sleep(1 + one.offset))
            except TimeoutError:
                late.append(one.offset)
            host.note(one)

        async with Run(host, handler, plan(8, "key")):
            await host.caught_up()
        assert late == [1, 2]

    run_virtually(main())


def test_a_handler_that_is_not_async_is_refused() -> None:
    async def main() -> None:
        host = PlainHost(keyed(3, 1))
        async with Run(host, lambda one: one.offset) as run:
            error = await run.result()
        assert isinstance(error, InvalidArgument)
        assert "returned an int" in str(error)
        assert "async def" in str(error)

    run_virtually(main())


def test_whatever_can_be_awaited_is_a_handler() -> None:
    async def main() -> None:
        host = PlainHost(keyed(3, 1))

        async def handle(one: Record) -> None:
            host.note(one)

        async with Run(host, lambda one: asyncio.create_task(handle(one))):
            await host.caught_up()

    run_virtually(main())


def test_capacity_is_bounded_and_a_slow_partition_leaves_some_for_the_others() -> None:
    async def main() -> None:
        records = [record(p, o) for p in range(4) for o in range(400)]
        host = PlainHost(records)
        most = 0

        async def handler(one: Record) -> None:
            nonlocal most
            most = max(most, run.runner.health().in_flight)
            if one.partition == 0:
                await asyncio.sleep(1_000)
            host.note(one)

        async with Run(host, handler, plan(4, max_in_flight=64)) as run:
            await asyncio.sleep(900)
            assert {p.partition for p in host.finished} == {1, 2, 3}
            assert host.unfinished() == 400
            assert run.runner.health().paused == 1
            assert TopicPartition("t", 0) in host.paused
        assert 16 < most <= 64
        assert host.longest_gap <= 2.0

    run_virtually(main())


def test_polls_go_on_while_all_handlers_are_busy_and_slow_ones_are_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        host = PlainHost(keyed(200, 200))
        host.max_poll_interval = 30.0
        watch = Watch(host, 100.0)
        async with Run(host, watch, plan(2, "key", max_in_flight=8)) as run:
            await asyncio.sleep(95)
            slow = run.runner.health().slow
            assert [(one.topic_partition, one.offset) for one in slow] == [(T0, 0), (T0, 1)]
            assert slow[0].seconds == pytest.approx(95, abs=0.1)
            assert not run.runner.health().ok
            assert host.longest_gap <= 1.1
            await asyncio.sleep(10)
            assert run.runner.health().ok

    with caplog.at_level("WARNING"):
        run_virtually(main())
    reported = [text for text in caplog.messages if "handler is slow" in text]
    assert len(reported) == 2
    assert "partition=t-0 offset=0 seconds=30" in reported[0]


def test_records_are_handled_again_from_where_the_user_seeks_back_to() -> None:
    async def main() -> None:
        host = PlainHost(keyed(10, 1))
        seen: list[int] = []

        async def handler(one: Record) -> None:
            seen.append(one.offset)
            await asyncio.sleep(1)
            host.note(one)

        async with Run(host, handler):
            await asyncio.sleep(3.5)
            host.positions[T0] = 1  # as seek does
            host.append(record(0, 10))
            await asyncio.sleep(20)
        assert seen[:4] == [0, 1, 2, 3]
        assert seen[4:] == list(range(1, 11))

    run_virtually(main())


def test_polling_goes_on_after_an_error_that_passes_and_not_after_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        host = PlainHost(keyed(4, 1))
        host.errors = [RequestTimedOut("for now") for _ in range(20)]
        watch = Watch(host)
        async with Run(host, watch) as run:
            await host.caught_up()
            assert len([text for text in caplog.messages if "polling failed" in text]) == 1
            host.errors.append(NoPosition("nobody said where"))
            host.append(record(0, 4))
            error = await run.result()
        assert isinstance(error, NoPosition)
        assert host.committed == {T0: 4}
        assert host.processed is None

    run_virtually(main())


def test_more_is_taken_as_soon_as_there_is_capacity_again() -> None:
    async def main() -> None:
        host = PlainHost([record(p, o) for p in range(8) for o in range(5)])
        begun = host.clock.now()
        async with Run(host, Watch(host, 0.01), plan(1, "none", max_in_flight=2)):
            await host.caught_up()
        assert host.clock.now() - begun < 0.41  # and not only when the next poll is due

    run_virtually(main())
