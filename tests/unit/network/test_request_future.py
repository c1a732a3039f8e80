"""RequestFuture: one outcome, listeners run at once, a loop is needed only to await."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref

import pytest

from kclient.errors import RequestTimedOut
from kclient.network.requests import AlreadyDone, RequestFuture


def completed(value: int | None) -> RequestFuture[int | None]:
    """Return a future that is completed with ``value``."""
    future: RequestFuture[int | None] = RequestFuture()
    future.complete(value)
    return future


def test_completes_with_a_value_without_a_loop() -> None:
    future: RequestFuture[int] = RequestFuture()
    assert not future.done
    future.complete(7)
    assert future.done
    assert future.succeeded
    assert future.error is None
    assert future.result() == 7


def test_fails_with_an_error_without_a_loop() -> None:
    future: RequestFuture[int] = RequestFuture()
    error = RequestTimedOut("late")
    future.fail(error)
    assert future.done
    assert not future.succeeded
    assert future.error is error
    with pytest.raises(RequestTimedOut, match="late"):
        future.result()


def test_none_is_a_value() -> None:
    future = completed(None)
    assert future.succeeded
    assert future.result() is None


@pytest.mark.parametrize("first", ["complete", "fail"])
@pytest.mark.parametrize("second", ["complete", "fail"])
def test_a_second_outcome_is_an_error_and_changes_nothing(first: str, second: str) -> None:
    def give(future: RequestFuture[int], how: str, number: int) -> None:
        if how == "complete":
            future.complete(number)
        else:
            future.fail(ValueError(str(number)))

    future: RequestFuture[int] = RequestFuture()
    give(future, first, 1)
    with pytest.raises(AlreadyDone):
        give(future, second, 2)
    assert future.error is None or str(future.error) == "1"
    assert future.error is not None or future.result() == 1


def test_an_exception_is_not_a_value() -> None:
    future: RequestFuture[object] = RequestFuture()
    with pytest.raises(TypeError, match="use fail"):
        future.complete(ValueError())
    assert not future.done


@pytest.mark.parametrize("error", [StopIteration(), "text", ValueError, KeyboardInterrupt()])
def test_fails_only_with_an_exception_that_can_be_raised_in_an_await(error: object) -> None:
    future: RequestFuture[int] = RequestFuture()
    with pytest.raises(TypeError, match="fail"):
        future.fail(error)  # type: ignore[arg-type]
    assert not future.done


def test_result_of_a_pending_future_raises_with_the_hint_to_await_it() -> None:
    with pytest.raises(RuntimeError, match="await it"):
        RequestFuture[int]().result()


def test_listeners_run_at_once_in_order_with_the_future() -> None:
    future: RequestFuture[int] = RequestFuture()
    seen: list[object] = []
    future.add_listener(lambda f: seen.append(("first", f)))
    future.add_listener(lambda f: seen.append(("second", f)))
    assert seen == []
    future.complete(1)
    assert seen == [("first", future), ("second", future)]


def test_a_listener_of_a_done_future_runs_now() -> None:
    seen: list[int] = []
    completed(3).add_listener(lambda f: seen.append(f.result()))
    assert seen == [3]


def test_a_removed_listener_is_not_called() -> None:
    future: RequestFuture[int] = RequestFuture()
    seen: list[object] = []
    future.add_listener(seen.append)
    future.remove_listener(seen.append)
    future.remove_listener(seen.append)
    assert future.listener_count == 0
    future.complete(1)
    assert seen == []


def test_a_failing_listener_does_not_keep_the_others_from_running_and_is_raised() -> None:
    future: RequestFuture[int] = RequestFuture()
    seen: list[object] = []

    def fails(_: RequestFuture[int]) -> None:
        raise ZeroDivisionError("mine")

    def fails_too(_: RequestFuture[int]) -> None:
        raise KeyError("other")

    future.add_listener(fails)
    future.add_listener(fails_too)
    future.add_listener(seen.append)
    with pytest.raises(ZeroDivisionError, match="mine") as raised:
        future.complete(1)
    assert seen == [future]
    assert any("other" in note for note in raised.value.__notes__)
    assert future.result() == 1


def test_a_listener_may_add_another_one() -> None:
    future: RequestFuture[int] = RequestFuture()
    seen: list[str] = []
    future.add_listener(lambda f: f.add_listener(lambda _: seen.append("inner")))
    future.complete(1)
    assert seen == ["inner"]


def test_a_raised_error_keeps_no_frame_alive() -> None:
    class Local:
        pass

    def look() -> weakref.ref[Local]:
        local = Local()
        with contextlib.suppress(ValueError):
            RequestFuture.failed(ValueError("no")).result()
        return weakref.ref(local)

    gc.disable()
    try:
        assert look()() is None
    finally:
        gc.enable()


def test_repr_names_the_state() -> None:
    assert repr(RequestFuture[int]()) == "<RequestFuture pending>"
    assert repr(completed(1)) == "<RequestFuture completed 1>"
    assert "failed ValueError" in repr(RequestFuture.failed(ValueError()))


async def test_await_of_a_done_future_does_not_suspend() -> None:
    future = completed(4)
    with pytest.raises(StopIteration) as stopped:
        future.__await__().send(None)
    assert stopped.value.value == 4


async def test_all_awaiting_tasks_get_the_value() -> None:
    future: RequestFuture[int] = RequestFuture()

    async def wait() -> int:
        return await future

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(wait()) for _ in range(3)]
        asyncio.get_running_loop().call_soon(future.complete, 9)
    assert [task.result() for task in tasks] == [9, 9, 9]
    assert future.listener_count == 0


async def test_an_awaiting_task_gets_the_error() -> None:
    future: RequestFuture[int] = RequestFuture()
    asyncio.get_running_loop().call_soon(future.fail, RequestTimedOut("late"))
    with pytest.raises(RequestTimedOut, match="late"):
        await future


async def test_a_cancelled_waiter_leaves_no_listener_and_harms_no_other_waiter() -> None:
    future: RequestFuture[int] = RequestFuture()

    async def wait() -> int:
        return await future

    async with asyncio.TaskGroup() as group:
        other = group.create_task(wait())
        cancelled = group.create_task(wait())
        loop = asyncio.get_running_loop()
        loop.call_soon(cancelled.cancel)
        loop.call_soon(loop.call_soon, lambda: counts.append(future.listener_count))
        counts: list[int] = []
        loop.call_soon(loop.call_soon, loop.call_soon, future.complete, 1)
    assert cancelled.cancelled()
    assert counts == [1]
    assert other.result() == 1


async def test_a_timed_out_waiter_leaves_the_request_alone() -> None:
    future: RequestFuture[int] = RequestFuture()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await future
    assert future.listener_count == 0
    future.complete(1)
    assert await future == 1


async def test_a_waiter_cancelled_in_the_same_round_as_the_outcome_is_cancelled() -> None:
    future: RequestFuture[int] = RequestFuture()

    async def wait() -> int:
        return await future

    task = asyncio.create_task(wait())
    loop = asyncio.get_running_loop()
    loop.call_soon(future.complete, 1)
    loop.call_soon(task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert future.result() == 1
