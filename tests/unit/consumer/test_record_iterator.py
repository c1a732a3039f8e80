"""Steps of ``async for``: to await and to tasks they are coroutines, in both builds."""

from __future__ import annotations

import asyncio
import collections.abc
import sys
import weakref
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

from kclient.errors import ClientClosed, DeserializationFailed
from kclient.record import IMPLEMENTATION

MODULES = ["record_iterator"]
if IMPLEMENTATION == "cython" and find_spec("kclient.consumer._record_iterator_c"):
    MODULES.append("_record_iterator_c")


@pytest.fixture(params=MODULES)
def steps(request: pytest.FixtureRequest) -> Any:
    return import_module(f"kclient.consumer.{request.param}")


class FakePoller:
    """Returns the records of ``later`` one by one, to pending steps; None closes it."""

    closed = True  # it is this poller that raises ClientClosed

    def __init__(self, steps: Any, *records: Any) -> None:
        self.iterator_buffer = steps.IteratorBuffer()
        self.iterator_buffer.left = iter(records)
        self.later: asyncio.Queue[Any] = asyncio.Queue()
        self.turns = 0

    async def next_record(self) -> Any:
        record = await self.later.get()
        if record is None:
            raise ClientClosed("closed")
        return record

    async def others(self) -> None:
        self.turns += 1
        await asyncio.sleep(0)

    def converted(self, record: Any) -> Any:
        if record == "bad":
            raise DeserializationFailed("bad")
        return record.upper()


def iterator_of(steps: Any, poller: FakePoller, *, converts: bool = False, now: Any = None) -> Any:
    return steps.RecordIterator(
        poller, converts=converts, clock=now or (lambda: 0.0), real=False, turn=0.005
    )


async def test_records_at_hand_come_first_and_then_those_that_are_waited_for(steps: Any) -> None:
    poller = FakePoller(steps, "a", "b")
    for later in ("c", "d", None):
        poller.later.put_nowait(later)
    assert [record async for record in iterator_of(steps, poller)] == ["a", "b", "c", "d"]


async def test_a_step_is_a_coroutine_to_tasks(steps: Any) -> None:
    poller = FakePoller(steps, "a")
    step = steps.NextRecord(iterator_of(steps, poller))
    assert isinstance(step, collections.abc.Coroutine)
    assert await asyncio.create_task(step) == "a"
    waiting = asyncio.create_task(steps.NextRecord(iterator_of(steps, poller)))
    await asyncio.sleep(0)
    poller.later.put_nowait("b")
    assert await waiting == "b"
    assert "NextRecord" in repr(waiting)


async def test_two_steps_at_once_get_a_record_each(steps: Any) -> None:
    poller = FakePoller(steps, "a")
    iterator = iterator_of(steps, poller)
    both = asyncio.gather(anext(iterator), anext(iterator))
    await asyncio.sleep(0)
    poller.later.put_nowait("b")
    assert list(await both) == ["a", "b"]


def test_what_a_caller_of_next_has_kept_is_not_changed_by_later_steps(steps: Any) -> None:
    iterator = iterator_of(steps, FakePoller(steps, "a", "b", "c"))
    kept = []
    for _ in range(3):
        with pytest.raises(StopIteration) as ended:
            next(steps.NextRecord(iterator))
        kept.append(ended.value)
    assert [one.value for one in kept] == ["a", "b", "c"]


async def test_a_record_that_takes_a_step_as_it_goes_changes_no_result(steps: Any) -> None:
    """The previous record is freed while the next one is returned: its code may do anything."""
    other = iterator_of(steps, FakePoller(steps, "x"))
    inner = []

    class Record:
        def __del__(self) -> None:
            with pytest.raises(StopIteration) as ended:
                next(steps.NextRecord(other))
            inner.append(ended.value.value)

    poller = FakePoller(steps)
    poller.iterator_buffer.left = (make() for make in (Record, lambda: "b", lambda: "c"))
    iterator = iterator_of(steps, poller)
    await anext(iterator)
    assert [await anext(iterator), await anext(iterator)] == ["b", "c"]
    assert inner == ["x"]


async def test_nothing_keeps_a_record_alive_once_the_next_one_is_waited_for(steps: Any) -> None:
    class Record:
        pass

    iterator = iterator_of(steps, FakePoller(steps, Record()))
    given = weakref.ref(await anext(iterator))
    task = asyncio.ensure_future(anext(iterator))
    await asyncio.sleep(0)
    assert given() is None
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_was_taken_back_before_a_step_began_is_waited_for(steps: Any) -> None:
    poller = FakePoller(steps, "a")
    step = steps.NextRecord(iterator_of(steps, poller))
    poller.iterator_buffer.left = iter(())
    poller.later.put_nowait("b")
    assert await step == "b"


async def test_a_step_that_was_cancelled_has_taken_nothing(steps: Any) -> None:
    poller = FakePoller(steps)
    iterator = iterator_of(steps, poller)
    task = asyncio.ensure_future(steps.NextRecord(iterator))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    early = asyncio.ensure_future(steps.NextRecord(iterator))
    early.cancel()  # before it began
    with pytest.raises(asyncio.CancelledError):
        await early
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await steps.NextRecord(iterator)
    poller.later.put_nowait("a")
    assert await steps.NextRecord(iterator) == "a"


async def test_a_step_can_be_awaited_once(steps: Any) -> None:
    step = steps.NextRecord(iterator_of(steps, FakePoller(steps, "a", "b")))
    assert await step == "a"
    with pytest.raises(RuntimeError, match="already awaited"):
        await step
    with pytest.raises(RuntimeError, match="already awaited"):
        step.throw(ValueError())
    closed = steps.NextRecord(iterator_of(steps, FakePoller(steps, "a")))
    closed.close()
    with pytest.raises(RuntimeError, match="already awaited"):
        await closed


async def test_by_hand_a_step_does_what_a_coroutine_does(steps: Any) -> None:
    poller = FakePoller(steps, "a", "b", "c", ("a", "tuple"))
    iterator = iterator_of(steps, poller)
    with pytest.raises(StopIteration) as ended:
        steps.NextRecord(iterator).send(None)
    assert ended.value.value == "a"
    with pytest.raises(StopIteration) as ended:
        next(iter(steps.NextRecord(iterator)))
    assert ended.value.value == "b"
    with pytest.raises(ValueError, match="mine"):
        steps.NextRecord(iterator).throw(ValueError("mine"))
    for expected in ("c", ("a", "tuple")):
        assert await steps.NextRecord(iterator) == expected
    waiting = steps.NextRecord(iterator)
    waiting.send(None)
    waiting.close()


async def test_it_yields_to_the_loop_when_that_is_due(steps: Any) -> None:
    time = 0.0
    poller = FakePoller(steps, *"abcdef")
    iterator = iterator_of(steps, poller, now=lambda: time)
    taken = []
    for _ in range(6):
        taken.append(await anext(iterator))
        time += 0.002
    assert taken == list("abcdef")
    assert poller.turns == 1


async def test_fresh_iterators_do_not_put_off_the_yield_to_the_loop(steps: Any) -> None:
    time = 0.0
    poller = FakePoller(steps, *"abcdef")

    def now() -> float:
        return time

    taken = []
    for _ in range(6):
        taken.append(await anext(iterator_of(steps, poller, now=now)))
        time += 0.002
    assert taken == list("abcdef")
    assert poller.turns == 1


async def test_a_fresh_iterator_whose_clock_is_another_is_due_by_its_own(steps: Any) -> None:
    time = 1000.0
    poller = FakePoller(steps, *"abcdef")
    assert await anext(iterator_of(steps, poller, now=lambda: time)) == "a"
    time = 0.0
    iterator = iterator_of(steps, poller, now=lambda: time)
    time = 0.006
    assert await anext(iterator) == "b"
    assert poller.turns == 1


async def test_a_cancelled_yield_counts(steps: Any) -> None:
    """Else a short timeout would never get a record, however many are at hand."""
    time = 0.0
    poller = FakePoller(steps, "a", "b")
    iterator = iterator_of(steps, poller, now=lambda: time)
    time = 0.006
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await anext(iterator)
    async with asyncio.timeout(0):
        assert await anext(iterator) == "a"
    assert poller.turns == 1


async def test_what_cannot_be_converted_is_raised_by_its_step(steps: Any) -> None:
    poller = FakePoller(steps, "a", "bad", "c")
    iterator = iterator_of(steps, poller, converts=True)
    assert await anext(iterator) == "A"
    with pytest.raises(DeserializationFailed):
        await anext(iterator)
    assert await anext(iterator) == "C"


async def test_a_step_under_a_tracer_returns_its_record(steps: Any) -> None:
    poller = FakePoller(steps, "a", "b")
    iterator = iterator_of(steps, poller)
    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        found = [await steps.NextRecord(iterator), await anext(iterator)]
    finally:
        sys.settrace(before)
    assert found == ["a", "b"]
