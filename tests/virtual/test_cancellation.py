"""Every await of a client may be cancelled, at any suspension, in any state of the world.

Nothing is lost or doubled, nothing is left behind, the cancellation comes through, and the client
goes on. All points are enumerated: each public coroutine of Producer, Consumer and Admin, in each
state, at each suspension, at each moment of it (see ``cancelling`` and ``scenes``).
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import kclient
from kclient.testing import Cluster, run_virtually
from tests.virtual.cancelling import enumerate_points, points_of
from tests.virtual.group_scenes import GROUP_CALLS, GroupState
from tests.virtual.scenes import CALLS, Scene, State

LEAST = 1_000
ALL = [(kind, call) for kind, calls in CALLS for call in calls]
NAMES = [f"{kind.__name__}-{call.__name__}" for kind, call in ALL]
IN_GROUPS = [(kind, call) for kind, calls in GROUP_CALLS for call in calls]
NAMES_IN_GROUPS = [f"{kind.__name__}-{call.__name__}" for kind, call in IN_GROUPS]
GROUP_STATES = [
    pytest.param(
        state,
        id=state.name.lower(),
        marks=[] if state in (GroupState.HEALTHY, GroupState.REBALANCING) else pytest.mark.long,
    )
    for state in GroupState
]
COVERED_BY = {
    "__aenter__": "body",
    "__aexit__": "body",
    "__aiter__": "iterate",
}
"""Public coroutines that a call of another name covers."""


def cancel_everywhere(
    kind: type[Scene], call: Callable[[Any], Awaitable[Any]], state: State | GroupState
) -> None:
    count, trouble = enumerate_points(lambda: kind(state, call))
    assert not trouble, f"{len(trouble)} of {count} points: " + "\n".join(trouble[:5])


@pytest.mark.parametrize("state", State, ids=lambda state: state.name.lower())
@pytest.mark.parametrize(("kind", "call"), ALL, ids=NAMES)
def test_a_call_may_be_cancelled_at_every_suspension(
    kind: type[Scene], call: Callable[[Any], Awaitable[Any]], state: State
) -> None:
    cancel_everywhere(kind, call, state)


@pytest.mark.parametrize("state", GROUP_STATES)
@pytest.mark.parametrize(("kind", "call"), IN_GROUPS, ids=NAMES_IN_GROUPS)
def test_a_call_in_a_group_may_be_cancelled_at_every_suspension(
    kind: type[Scene], call: Callable[[Any], Awaitable[Any]], state: GroupState
) -> None:
    cancel_everywhere(kind, call, state)


@pytest.mark.long
def test_there_are_at_least_a_thousand_points(capsys: pytest.CaptureFixture[str]) -> None:
    """The tests above try them."""
    by_state = {
        state: sum(len(points_of(functools.partial(kind, state, call))[0]) for kind, call in ALL)
        for state in State
    }
    total = sum(by_state.values())
    with capsys.disabled():
        parts = ", ".join(f"{state.name.lower()} {count:,}" for state, count in by_state.items())
        print(f"\ncancelled at {total:,} points of {len(ALL)} calls: {parts}")  # noqa: T201
    assert total >= LEAST
    assert min(by_state.values()) >= 100


@pytest.mark.parametrize("client", [kclient.Producer, kclient.Consumer, kclient.Admin])
def test_every_public_coroutine_is_among_them(client: type) -> None:
    client_name = client.__name__
    tried = {call.__name__ for kind, call in ALL + IN_GROUPS if client_name in kind.__name__}
    coroutines = {
        name
        for name, member in inspect.getmembers(client)
        if inspect.iscoroutinefunction(member) and not name.startswith("_")
    } | {"__aenter__", "__aexit__"}
    if client is kclient.Consumer:
        coroutines |= {"__aiter__"}
    assert {COVERED_BY.get(name, name) for name in coroutines} - tried == set()


def test_no_record_is_lost_or_doubled_by_thousands_of_short_timeouts() -> None:
    async def main() -> list[int]:
        rng = random.Random(5)
        async with (
            Cluster(brokers=1) as cluster,
            kclient.Producer(cluster.create_topic("t") and cluster.bootstrap) as producer,
            kclient.Consumer(
                cluster.bootstrap, "t", auto_offset_reset="earliest", max_poll_records=7
            ) as consumer,
        ):
            for number in range(4_000):
                producer.send("t", b"%d" % number)
            got: list[int] = []
            timeouts = 0
            records = aiter(consumer)
            while len(got) < 4_000:
                try:
                    async with asyncio.timeout(rng.uniform(0.0, 0.005)):
                        if rng.random() < 0.5:
                            got += [int(r.value) for r in await consumer.poll(rng.randrange(1, 9))]
                        else:
                            got.append(int((await anext(records)).value))
                except TimeoutError:
                    timeouts += 1
            for number in range(4_000, 6_000):  # one by one: now nearly all wait
                try:
                    async with asyncio.timeout(rng.uniform(0.0, 0.004)):
                        await producer.send("t", b"%d" % number)
                except TimeoutError:
                    timeouts += 1
                try:
                    async with asyncio.timeout(rng.uniform(0.0, 0.004)):
                        got += [int(record.value) for record in await consumer.poll()]
                except TimeoutError:
                    timeouts += 1
            while len(got) < 6_000:
                got += [int(record.value) for record in await consumer.poll()]
        assert timeouts > 1_000
        return got

    assert run_virtually(main()) == list(range(6_000))
