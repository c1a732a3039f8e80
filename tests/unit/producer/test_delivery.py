"""Delivery: the handle behaves like a future, and one outcome serves a whole batch."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import random
import weakref
from typing import Any

import pytest

from kclient.errors import DeliveryTimedOut, KafkaError
from kclient.producer._compiled import (
    BatchOutcome,
    Delivery,
    MemoryBudget,
    ProducerBatch,
    RecordAppender,
    SettledHost,
    StickyPartitioner,
    TopicState,
)
from kclient.record import IMPLEMENTATION, BatchBuilder
from kclient.types import RecordMetadata


class Host:
    """Records unseen failures."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.of_written = SettledHost(self.loop)
        self.unseen: list[int] = []

    def unseen_failure(self, outcome: BatchOutcome, count: int) -> None:
        self.unseen.append(count)


def make(count: int = 3) -> tuple[Host, BatchOutcome, list[Delivery]]:
    host = Host()
    outcome = BatchOutcome(host, "t", 2)
    outcome.count = count
    return host, outcome, [Delivery(outcome, i, 100 + i) for i in range(count)]


async def test_metadata_is_base_offset_plus_index_with_own_timestamp() -> None:
    _, outcome, deliveries = make()
    outcome.acknowledge(40)
    assert await deliveries[2] == RecordMetadata("t", 2, 42, 102)


async def test_log_append_time_replaces_the_own_timestamp() -> None:
    _, outcome, deliveries = make()
    outcome.acknowledge(40, 999)
    assert deliveries[1].result().timestamp == 999


async def test_an_unknown_offset_stays_minus_one() -> None:
    _, outcome, deliveries = make()
    outcome.acknowledge(-1)
    assert [d.result().offset for d in deliveries] == [-1, -1, -1]


async def test_awaiting_a_finished_one_does_not_suspend() -> None:
    _, outcome, deliveries = make()
    outcome.acknowledge(0)
    with pytest.raises(StopIteration) as stopped:
        next(deliveries[0].__await__())
    assert stopped.value.value.offset == 0


async def test_cancelling_one_waiter_does_not_affect_the_others() -> None:
    _, outcome, deliveries = make()

    async def wait() -> RecordMetadata:
        return await deliveries[0]

    first, second = asyncio.create_task(wait()), asyncio.create_task(wait())
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not deliveries[0].cancelled()
    outcome.acknowledge(7)
    assert (await second).offset == 7


async def test_a_cancelled_waiter_leaves_no_listener_behind() -> None:
    _, _, deliveries = make()

    async def wait() -> None:
        await deliveries[0]

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not deliveries[0]._listeners


@pytest.mark.filterwarnings(r"ignore:the \(type, exc, tb\) signature:DeprecationWarning")
@pytest.mark.parametrize("ending", ["throw", "throw a class", "throw a class and text", "close"])
async def test_a_coroutine_that_is_ended_by_hand_leaves_no_listener_behind(ending: str) -> None:
    _, outcome, deliveries = make()

    async def wait() -> None:
        await deliveries[0]

    waiting = wait()
    waiting.send(None)
    assert deliveries[0]._listeners
    if ending == "close":
        waiting.close()
    else:
        thrown = {
            "throw": (OSError("by hand"),),
            "throw a class": (OSError,),
            "throw a class and text": (OSError, "by hand"),
        }
        with pytest.raises(OSError, match=None if ending == "throw a class" else "by hand"):
            waiting.throw(*thrown[ending])
    assert not deliveries[0]._listeners
    outcome.acknowledge(0)


async def test_an_await_without_a_task_is_an_error() -> None:
    _, _, deliveries = make()
    steps = deliveries[0].__await__()
    next(steps)
    with pytest.raises(RuntimeError, match="await wasn't used with a task"):
        next(steps)
    assert not deliveries[0]._listeners


async def test_a_task_that_is_cancelled_after_the_outcome_ends_cancelled() -> None:
    _, outcome, deliveries = make()

    async def wait(delivery: Delivery) -> None:
        await delivery

    tasks = [asyncio.create_task(wait(delivery)) for delivery in deliveries]
    await asyncio.sleep(0)
    outcome.acknowledge(0)
    tasks[1].cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in ended] == [type(None), asyncio.CancelledError, type(None)]


async def test_looking_again_and_again_leaves_no_more_behind_than_once() -> None:
    _, outcome, deliveries = make()
    for _ in range(50):
        await asyncio.wait(deliveries, timeout=0)
    assert len(outcome._waiting) == len(deliveries)
    many = [asyncio.ensure_future(asyncio.wait([deliveries[0]])) for _ in range(20)]
    await asyncio.sleep(0)
    outcome.acknowledge(0)
    await asyncio.gather(*many)


async def test_a_waiter_that_left_before_a_split_does_not_affect_later_ones() -> None:
    host, outcome, deliveries = make(2)
    await asyncio.wait(deliveries, timeout=0)
    parts = [BatchOutcome(host, "t", 2), BatchOutcome(host, "t", 2)]
    for part in parts:
        part.count = 1
    outcome.divide(parts)
    waiting = asyncio.gather(*deliveries)
    parts[1].acknowledge(8)
    parts[0].acknowledge(7)
    assert [m.offset for m in await waiting] == [7, 8]


async def test_a_callback_that_raises_is_reported_to_the_loop_and_the_others_are_called() -> None:
    host, outcome, deliveries = make()
    reported: list[str] = []
    host.loop.set_exception_handler(
        lambda loop, context: reported.append(str(context["exception"]))
    )
    variable = contextvars.ContextVar("variable", default="outside")
    seen: list[str] = []

    def raises(delivery: Delivery) -> None:
        variable.set("inside")
        raise ValueError("the user's own")

    deliveries[0].add_done_callback(raises)
    deliveries[1].add_done_callback(lambda d: seen.append(variable.get()))
    deliveries[2].add_done_callback(lambda d: seen.append(variable.get()))
    outcome.acknowledge(0)
    await asyncio.sleep(0)
    assert reported == ["the user's own"]
    assert seen == ["outside", "outside"]
    assert variable.get() == "outside"


async def test_callbacks_are_called_in_order_however_many_a_delivery_has() -> None:
    _, outcome, deliveries = make(200)
    seen: list[object] = []
    for i, delivery in enumerate(deliveries):
        for _ in range(1 + i % 3 + (i == 77) * 500):
            delivery.add_done_callback(lambda _, i=i: seen.append(i))
    outcome.acknowledge(0)
    deliveries[77].add_done_callback(lambda _: seen.append("late"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert seen[-1] == "late"
    assert seen[:-1] == sorted(seen[:-1])
    assert len(seen) == 1 + 500 + sum(1 + i % 3 for i in range(200))


@pytest.mark.parametrize("who", ["callback", "handler"])
def test_an_exit_out_of_a_callback_leaves_no_task_waiting(who: str) -> None:
    loop = asyncio.new_event_loop()
    tasks: list[asyncio.Task[None]] = []

    def ends(*_: object) -> None:
        raise SystemExit(3)

    async def wait(delivery: Delivery) -> None:
        await delivery

    async def main() -> None:
        _, outcome, deliveries = make(10)
        loop.set_exception_handler(ends)
        deliveries[0].add_done_callback(ends if who == "callback" else lambda _: [][0])
        tasks.extend(loop.create_task(wait(delivery)) for delivery in deliveries[1:])
        await asyncio.sleep(0)
        outcome.acknowledge(0)
        await asyncio.sleep(1)

    running = loop.create_task(main())
    with pytest.raises(SystemExit):
        loop.run_until_complete(running)
    loop.run_until_complete(asyncio.wait(tasks, timeout=5))
    assert all(task.done() for task in tasks)
    running.cancel()
    loop.run_until_complete(asyncio.wait([running]))
    loop.close()


async def test_a_cancelled_await_keeps_nothing_of_the_users() -> None:
    class Big:
        pass

    _, _, deliveries = make()
    kept: list[weakref.ref[Big]] = []

    async def wait() -> None:
        big = Big()
        kept.append(weakref.ref(big))
        await deliveries[0]

    gc.collect()
    gc.disable()
    try:
        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
        await asyncio.sleep(0)
        assert kept[0]() is None
    finally:
        gc.enable()


async def test_only_an_await_creates_a_waiter() -> None:
    _, _, deliveries = make()
    with pytest.raises(TypeError):
        type(deliveries[0].__await__())()


async def test_cancel_abandons_the_handle_while_the_record_lives_on() -> None:
    _, outcome, deliveries = make()
    assert deliveries[0].cancel()
    assert deliveries[0].cancelled() and deliveries[0].done()
    outcome.acknowledge(0)
    with pytest.raises(asyncio.CancelledError):
        await deliveries[0]
    assert (await deliveries[1]).offset == 1


async def test_cancelling_a_finished_one_does_nothing() -> None:
    _, outcome, deliveries = make()
    outcome.acknowledge(0)
    assert not deliveries[0].cancel()
    assert not deliveries[0].cancelled()


async def test_gather_wait_wait_for_and_shield_take_it_without_a_task() -> None:
    _, outcome, deliveries = make(5)
    tasks = len(asyncio.all_tasks())
    gathered = asyncio.gather(*deliveries[:2])
    shielded = asyncio.shield(deliveries[2])
    assert len(asyncio.all_tasks()) == tasks
    asyncio.get_running_loop().call_soon(outcome.acknowledge, 10)
    assert [m.offset for m in await gathered] == [10, 11]
    assert (await shielded).offset == 12
    done, pending = await asyncio.wait([deliveries[3]])
    assert done == {deliveries[3]} and not pending
    assert (await asyncio.wait_for(deliveries[4], 5)).offset == 14


async def test_a_gather_of_pending_ones_can_be_cancelled() -> None:
    _, outcome, deliveries = make()

    async def gather() -> None:
        await asyncio.gather(*deliveries)

    waiting = asyncio.create_task(gather())
    await asyncio.sleep(0)
    waiting.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert all(delivery.cancelled() for delivery in deliveries)
    outcome.acknowledge(0)


async def test_wait_for_times_out_at_once_and_abandons_the_handle() -> None:
    _, outcome, deliveries = make()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(deliveries[0], 0.001)
    outcome.acknowledge(0)
    assert (await deliveries[1]).offset == 1


async def test_as_completed_takes_it() -> None:
    _, outcome, deliveries = make()
    asyncio.get_running_loop().call_soon(outcome.acknowledge, 10)
    offsets = {(await each).offset for each in asyncio.as_completed(deliveries)}
    assert offsets == {10, 11, 12}


async def test_callbacks_run_on_the_loop_with_their_context() -> None:
    _, outcome, deliveries = make()
    variable = contextvars.ContextVar("variable", default="outside")
    context = contextvars.copy_context()
    context.run(variable.set, "inside")
    seen: list[tuple[Delivery, str]] = []
    deliveries[0].add_done_callback(lambda d: seen.append((d, variable.get())), context=context)
    deliveries[0].add_done_callback(lambda d: seen.append((d, variable.get())))
    outcome.acknowledge(0)
    assert seen == []
    await asyncio.sleep(0)
    assert seen == [(deliveries[0], "inside"), (deliveries[0], "outside")]


async def test_a_callback_added_late_still_runs() -> None:
    _, outcome, deliveries = make()
    outcome.acknowledge(0)
    seen: list[Delivery] = []
    deliveries[0].add_done_callback(seen.append)
    await asyncio.sleep(0)
    assert seen == [deliveries[0]]


async def test_removed_callbacks_stay_silent() -> None:
    _, outcome, deliveries = make()
    seen: list[Delivery] = []
    deliveries[0].add_done_callback(seen.append)
    deliveries[0].add_done_callback(seen.append)
    assert deliveries[0].remove_done_callback(seen.append) == 2
    assert deliveries[0].remove_done_callback(seen.append) == 0
    outcome.acknowledge(0)
    await asyncio.sleep(0)
    assert seen == []


async def test_a_pending_one_refuses_result_and_exception() -> None:
    _, _, deliveries = make()
    for ask in (deliveries[0].result, deliveries[0].exception):
        with pytest.raises(asyncio.InvalidStateError):
            ask()


async def test_each_handle_raises_an_error_instance_of_its_own() -> None:
    _, outcome, deliveries = make()
    outcome.fail(DeliveryTimedOut("late", maybe_written=True))
    errors = [d.exception() for d in deliveries]
    assert len({id(error) for error in errors}) == 3
    assert all(isinstance(e, DeliveryTimedOut) and e.maybe_written for e in errors)
    assert deliveries[0].exception() is errors[0]
    with pytest.raises(DeliveryTimedOut) as raised:
        await deliveries[0]
    assert raised.value is errors[0]


async def test_a_raised_error_does_not_collect_tracebacks() -> None:
    _, outcome, deliveries = make()
    outcome.fail(KafkaError("no"))
    depths = []
    for _ in range(3):
        with pytest.raises(KafkaError) as raised:
            await deliveries[0]
        depths.append(len(raised.traceback))
    assert len(set(depths)) == 1


async def test_record_errors_reach_the_records_they_name() -> None:
    _, outcome, deliveries = make()
    outcome.fail(KafkaError("batch"), {1: KafkaError("this one")})
    assert [d.exception().message for d in deliveries] == ["batch", "this one", "batch"]


async def test_deliveries_follow_their_records_through_splits() -> None:
    host, outcome, deliveries = make(5)
    waiting = asyncio.gather(*deliveries)
    left, right = BatchOutcome(host, "t", 2), BatchOutcome(host, "t", 2)
    left.count, right.count = 2, 3
    outcome.divide([left, right])
    first, second = BatchOutcome(host, "t", 2), BatchOutcome(host, "t", 2)
    first.count, second.count = 1, 2
    left.acknowledge(100)
    right.divide([first, second])
    first.acknowledge(102)
    second.acknowledge(200)
    assert [m.offset for m in await waiting] == [100, 101, 102, 200, 201]


async def test_a_huge_batch_wakes_its_waiters_in_several_iterations() -> None:
    _, outcome, deliveries = make(12_000)
    woken: list[int] = []
    for delivery in deliveries:
        delivery.add_done_callback(lambda one: woken.append(one.result().offset))
    await asyncio.sleep(0)
    outcome.acknowledge(0)
    seen = []
    while len(woken) < len(deliveries):
        await asyncio.sleep(0)
        seen.append(len(woken))
    assert len(seen) > 2
    assert woken == list(range(12_000))


async def test_an_unseen_failure_is_reported_once_with_the_count() -> None:
    host, outcome, deliveries = make()
    outcome.fail(KafkaError("no"))
    deliveries[0].exception()
    del outcome, deliveries
    gc.collect()
    assert host.unseen == [2]


async def test_a_failure_that_was_awaited_everywhere_is_not_unseen() -> None:
    host, outcome, deliveries = make()
    outcome.fail(KafkaError("no"))
    await asyncio.gather(*deliveries, return_exceptions=True)
    del outcome, deliveries
    gc.collect()
    assert host.unseen == []


async def test_a_reported_failure_is_not_unseen() -> None:
    host, outcome, deliveries = make()
    outcome.reported = True
    outcome.fail(KafkaError("no"))
    del outcome, deliveries
    gc.collect()
    assert host.unseen == []


async def test_repr_shows_the_state_and_no_content() -> None:
    _, outcome, deliveries = make()
    assert "pending" in repr(deliveries[0])
    deliveries[1].cancel()
    assert "cancelled" in repr(deliveries[1])
    outcome.acknowledge(5)
    assert "offset=5" in repr(deliveries[0])
    _, failed, handles = make()
    failed.fail(KafkaError("no"))
    assert "KafkaError" in repr(handles[0])
    handles[1].exception(), handles[2].exception(), handles[0].exception()


async def test_topic_partition_and_loop_are_known() -> None:
    host, _, deliveries = make()
    assert (deliveries[0].topic, deliveries[0].partition) == ("t", 2)
    assert deliveries[0].get_loop() is host.loop


def taken(host: Host) -> tuple[BatchOutcome, Delivery]:
    """Return a delivery as ``send`` creates it by the fast path."""
    budget = MemoryBudget(1_000_000)
    appender = RecordAppender(budget, 10_000)
    topic_state = TopicState(StickyPartitioner(10_000, random.Random(1), lambda partition: 0))
    outcome = BatchOutcome(host, "t", 0)
    queue: Any = None
    topic_state.count, topic_state.batches = (
        1,
        [ProducerBatch(queue, BatchBuilder(), outcome, 0.0, 1.0)],
    )
    appender.topics["t"] = topic_state
    appender.open(host.loop, lambda: 0)
    delivery = appender.take("t", b"v", None, None, 0, None)
    assert delivery is not None
    return outcome, delivery


async def test_the_collector_tracks_only_deliveries_with_waiters() -> None:
    outcome, delivery = taken(Host())
    compiled = IMPLEMENTATION == "cython"
    assert gc.is_tracked(delivery) is not compiled
    delivery.add_done_callback(lambda one: None)
    assert gc.is_tracked(delivery)
    outcome.acknowledge(0)
    await delivery


@pytest.mark.parametrize("looked_at", ["awaited", "exception", "gathered", "told in bulk"])
async def test_a_failure_that_was_raised_keeps_no_frames_of_its_handler(looked_at: str) -> None:
    class Mine:
        """Something large in the caller's frame."""

    async def use() -> weakref.ref[Mine]:
        mine = Mine()
        outcome, delivery = taken(Host())
        outcome.count = 1
        kept = [delivery, Delivery(outcome, 0, 5)]
        if looked_at == "gathered":
            gathered = asyncio.gather(*kept)
        shared = DeliveryTimedOut("late")
        outcome.fail(shared)
        try:
            if looked_at == "awaited":
                await kept[0]
            elif looked_at == "told in bulk":  # as FlushFailed.errors has it
                raise shared
            elif looked_at == "exception":
                error = kept[0].exception()
                assert error is kept[0].exception()
                raise error or RuntimeError
            else:
                await gathered
        except DeliveryTimedOut as caught:
            assert caught.__traceback__ is not None and mine
        return weakref.ref(mine)

    left = await use()
    await asyncio.sleep(0)  # the loop has finished its callbacks
    gc.collect()
    assert left() is None
