"""Every await of a ``GroupMember`` may be cancelled at any suspension, whatever the group is at."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import kclient
from kclient.error_codes import ErrorCode
from tests.virtual.cancelling import enumerate_points
from tests.virtual.pool import G, Pool, member_of
from tests.virtual.scenes import Scene, State

TROUBLES = {
    "FindCoordinator": ErrorCode.COORDINATOR_NOT_AVAILABLE,
    "JoinGroup": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    "SyncGroup": ErrorCode.REBALANCE_IN_PROGRESS,
    "Heartbeat": ErrorCode.REBALANCE_IN_PROGRESS,
    "LeaveGroup": ErrorCode.NOT_COORDINATOR,
}


class MemberScene(Scene):
    """A member alone in its group. In the state LEADERS_MOVE the coordinator does."""

    async def set_up(self) -> None:
        self.pool = Pool()
        if self.state is State.RETRYING:
            for api, code in TROUBLES.items():
                self.cluster.faults.error(api, code)
        await super().set_up()

    def make_client(self) -> Any:
        self.pool = Pool()
        return member_of(self.cluster, self.pool)

    def move_leaders(self) -> None:
        self.cluster.move_coordinator(G, 3 - max(1, self.cluster.coordinator(G)))

    async def warm_up(self) -> None:
        await self.client.joined(30.0)

    async def use(self) -> None:
        assert (await self.client.joined(30.0)).data == b"a"

    def judge(self) -> None:
        granted, ended = (
            self.pool.reported.count("on_assigned"),
            self.pool.reported.count("on_revoked"),
        )
        assert granted == ended + self.pool.reported.count("on_lost")


class StartingMemberScene(MemberScene):
    """A member that wasn't started: the call does it."""

    starts = False


async def start(scene: Any) -> None:
    await scene.client.start()
    scene.ready = True


async def body(scene: Any) -> None:
    """``async with``, with something in it."""
    async with scene.client:
        scene.ready = True
        try:
            await scene.use()
        finally:
            scene.ready = False


async def close(scene: Any) -> None:
    scene.ready = False
    await scene.client.close(5.0)


async def joined(scene: Any) -> None:
    """While the group rebalances."""
    scene.client.rejoin("a test")
    await asyncio.sleep(0)
    await scene.client.joined()


async def wait_for_rebalance(scene: Any) -> None:
    scene.client.rejoin("a test")
    await scene.client.wait_for_rebalance(30.0)


async def assignments(scene: Any) -> None:
    scene.client.rejoin("a test")
    async for _ in scene.client.assignments():
        if scene.state is State.BOOTSTRAPPING or scene.pool.reported.count("on_assigned") > 1:
            break


CALLS: list[tuple[type[MemberScene], Callable[[Any], Awaitable[None]]]] = [
    (StartingMemberScene, start),
    (StartingMemberScene, body),
    *((MemberScene, call) for call in (close, joined, wait_for_rebalance, assignments)),
]


@pytest.mark.parametrize("state", State, ids=lambda state: state.name.lower())
@pytest.mark.parametrize(("kind", "call"), CALLS, ids=[call.__name__ for _, call in CALLS])
def test_a_call_may_be_cancelled_at_every_suspension(
    kind: type[MemberScene], call: Callable[[Any], Awaitable[None]], state: State
) -> None:
    count, trouble = enumerate_points(lambda: kind(state, call))
    assert not trouble, f"{len(trouble)} of {count} points: " + "\n".join(trouble[:5])
    assert count


def test_every_public_coroutine_is_among_them() -> None:
    coroutines = {
        name
        for name, member in inspect.getmembers(kclient.GroupMember)
        if inspect.iscoroutinefunction(member) and not name.startswith("_")
    }
    assert coroutines <= {call.__name__ for _, call in CALLS}
    assert asyncio.iscoroutinefunction(kclient.GroupMember.__aexit__)  # body
