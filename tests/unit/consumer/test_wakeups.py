"""Alarm and Bell: who is woken, and what is left behind."""

from __future__ import annotations

import asyncio

from kclient.cluster.wakeups import Alarm, Bell


async def test_an_alarm_wakes_its_sleeper() -> None:
    alarm = Alarm()
    sleeper = asyncio.ensure_future(alarm.sleep(60.0))
    await asyncio.sleep(0)
    alarm.ring()
    await sleeper


async def test_an_alarm_that_rang_before_ends_the_next_sleep_at_once_and_only_that() -> None:
    alarm = Alarm()
    alarm.ring()
    await alarm.sleep(60.0)
    sleeper = asyncio.ensure_future(alarm.sleep(60.0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not sleeper.done()
    alarm.ring()
    await sleeper


async def test_an_alarm_has_a_time_limit_even_where_it_is_infinite_or_past() -> None:
    await Alarm().sleep(-1.0)
    sleeper = asyncio.ensure_future(Alarm().sleep(float("inf")))
    await asyncio.sleep(0)
    sleeper.cancel()
    await asyncio.wait([sleeper])
    assert sleeper.cancelled()


async def test_a_bell_wakes_all_who_wait_and_forgets_them() -> None:
    bell = Bell()
    bell.ring()  # nobody waits: nothing is kept
    waiters = [asyncio.ensure_future(bell.wait(60.0)) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(waiter.done() for waiter in waiters)
    bell.ring()
    bell.ring()
    await asyncio.gather(*waiters)
    assert not bell._waiters


async def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    bell = Bell()
    waiter = asyncio.ensure_future(bell.wait(float("inf")))
    await asyncio.sleep(0)
    waiter.cancel()
    await asyncio.wait([waiter])
    assert not bell._waiters
    bell.ring()


async def test_a_bell_has_a_time_limit() -> None:
    await Bell().wait(0.0)
