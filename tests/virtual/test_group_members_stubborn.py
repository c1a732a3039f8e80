"""A ``GroupMember``'s protocol functions that don't end: reported, and abandoned by ``close``."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.errors import ConsumerStalled
from kclient.testing import Cluster, run_virtually
from tests.virtual.hanging import Hanging, about
from tests.virtual.pool import Pool, member_of

LIMIT = 30.0
TOLD = ["on_assigned", "on_revoked", "on_lost"]
NAMES = [*TOLD, "assign"]


def now() -> float:
    return asyncio.get_running_loop().time()


async def start(name: str, cluster: Cluster, hanging: Hanging) -> Any:
    """A member in whose function ``name`` it hangs."""
    pool = Pool()
    pool.acts[name] = hanging
    member = member_of(cluster, pool, rebalance_timeout=LIMIT)
    await member.start()
    if name in ("on_revoked", "on_lost"):
        await member.joined()
        if name == "on_lost":
            cluster.faults.error("Heartbeat", ErrorCode.UNKNOWN_MEMBER_ID)
        else:
            member.rejoin("a test")
    async with asyncio.timeout(20.0):
        while hanging.began is None:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return member


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("timeout", [0.0, 1.0, 5.0])
def test_close_abandons_a_function_that_ignores_its_cancellation(
    name: str, timeout: float, caplog: pytest.LogCaptureFixture
) -> None:
    complaints: list[Any] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, c: complaints.append(c))
        async with Cluster(brokers=1) as cluster:
            hanging = Hanging(stubborn=True)
            member = await start(name, cluster, hanging)
            begun = now()
            async with asyncio.timeout(60.0):
                await member.close(timeout)
            assert now() - begun <= timeout + 0.3
            assert not hanging.ended
            assert about(caplog, f"{name}() of the group's protocol doesn't end, though cancelled")
            hanging.go.set()
            await asyncio.sleep(0.1)
            assert hanging.ended

    run_virtually(main())
    assert complaints == []


def test_close_abandons_a_function_of_close_and_leaves_the_group() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            pool, hanging = Pool(), Hanging(stubborn=True)
            pool.acts["on_revoked"] = hanging
            member = member_of(cluster, pool)
            await member.start()
            await member.joined()
            begun = now()
            async with asyncio.timeout(60.0):
                await member.close(5.0)
            assert 2.0 <= now() - begun <= 5.0
            assert cluster.requests.of("LeaveGroup")
            hanging.go.set()
            await asyncio.sleep(0.1)
            assert hanging.ended

    run_virtually(main())


@pytest.mark.parametrize("name", TOLD)
def test_a_function_that_hangs_is_reported_by_the_log_the_next_call_and_health(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            hanging = Hanging()
            member = await start(name, cluster, hanging)
            reported = f"{name}() of the group's protocol has not ended"
            await asyncio.sleep(LIMIT / 2 - 1 - hanging.age)
            assert not about(caplog, reported)
            await asyncio.sleep(LIMIT - 1 - hanging.age)
            (line,) = about(caplog, reported)
            assert f"{reported} after 15.0 s (rebalance_timeout is 30 s)" in line
            assert not member.health().stalled
            for times in (1, 2):
                with pytest.raises(ConsumerStalled, match=f"{name}.* has not ended after"):
                    await member.wait_for_rebalance()
                assert hanging.age == pytest.approx(times * LIMIT, abs=0.1)
                health = member.health()
                assert (health.running, health.stalled, health.ok) == (name, True, False)
            hanging.go.set()
            cluster.faults.clear()
            await asyncio.sleep(10.0)
            assert await member.joined(30.0)
            health = member.health()
            assert (health.running, health.stalled, health.ok) == (None, False, True)
            await member.close()

    run_virtually(main())


def test_functions_that_end_in_time_are_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            pool = Pool()
            for name in NAMES:
                pool.acts[name] = lambda: asyncio.sleep(LIMIT / 2 - 1)
            async with member_of(cluster, pool, rebalance_timeout=LIMIT) as member:
                await member.joined()
                member.rejoin("a test")
                await member.wait_for_rebalance()
                assert member.health().ok
                pool.acts.clear()
            assert not about(caplog, "() of the group's protocol")

    run_virtually(main())
