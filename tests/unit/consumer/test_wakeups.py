"""Wakeup and Broadcast: which tasks are woken, and what is left behind."""

from __future__ import annotations

import asyncio

from kclient.cluster.wakeups import Broadcast, Wakeup


async def test_a_wakeup_wakes_its_sleeper() -> None:
    alarm = Wakeup()
    sleeper = asyncio.ensure_future(alarm.sleep(60.0))
    await asyncio.sleep(0)
    alarm.notify()
    await sleeper


async def test_a_wakeup_notified_before_ends_the_next_sleep_at_once_and_only_that() -> None:
    alarm = Wakeup()
    alarm.notify()
    await alarm.sleep(60.0)
    sleeper = asyncio.ensure_future(alarm.sleep(60.0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not sleeper.done()
    alarm.notify()
    await sleeper


async def test_a_wakeup_has_a_time_limit_even_where_it_is_infinite_or_past() -> None:
    await Wakeup().sleep(-1.0)
    sleeper = asyncio.ensure_future(Wakeup().sleep(float("inf")))
    await asyncio.sleep(0)
    sleeper.cancel()
    await asyncio.wait([sleeper])
    assert sleeper.cancelled()


async def test_a_broadcast_wakes_all_waiters_and_forgets_them() -> None:
    bell = Broadcast()
    bell.notify()  # there is no waiter: nothing is kept
    waiters = [asyncio.ensure_future(bell.wait(60.0)) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(waiter.done() for waiter in waiters)
    bell.notify()
    bell.notify()
    await asyncio.gather(*waiters)
    assert not bell._waiters


async def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    bell = Broadcast()
    waiter = asyncio.ensure_future(bell.wait(float("inf")))
    await asyncio.sleep(0)
    waiter.cancel()
    await asyncio.wait([waiter])
    assert not bell._waiters
    bell.notify()


async def test_a_broadcast_has_a_time_limit() -> None:
    await Broadcast().wait(0.0)
