"""A follower's fetch that waits at its leader: what ends the wait, and how soon."""

from __future__ import annotations

import asyncio

from kclient.protocol.messages.fetch import FetchResponse
from kclient.testing import run_virtually
from kclient.testing.replica_manager import FollowerState, key_of
from tests.unit.testing.test_replica import copy


class Scene:
    """A follower_state with a waiting fetch, and the times of its responses."""

    def __init__(self, seconds: float | None = None) -> None:
        self.follower_state = FollowerState()
        self.replica = copy()
        self.began = asyncio.get_running_loop().time()
        self.answered: list[float] = []
        self.attempts = 0
        self.delay(seconds)

    def delay(self, seconds: float | None = None) -> None:
        self.answer = self.follower_state.delay(self.attempt, seconds)
        self.answer.then(self.note)

    def attempt(self) -> FetchResponse:
        self.attempts += 1
        return FetchResponse()

    def note(self, _: object) -> None:
        self.answered.append(asyncio.get_running_loop().time() - self.began)


def test_without_news_it_waits_for_ever() -> None:
    async def main() -> None:
        scene = Scene()
        await asyncio.sleep(10_000.0)
        assert scene.answered == []

    run_virtually(main())


def test_what_is_appended_ends_the_wait_at_once_and_only_once() -> None:
    async def main() -> None:
        scene = Scene()
        scene.follower_state.grown(scene.replica)
        scene.follower_state.grown(scene.replica)
        assert scene.answered == [], "answered in the midst of an append"
        await asyncio.sleep(1.0)
        assert scene.answered == [0.0]
        assert scene.attempts == 1
        assert list(scene.follower_state.news) == [key_of(scene.replica)]
        assert scene.follower_state.has_grown

    run_virtually(main())


def test_a_high_watermark_that_moved_may_wait() -> None:
    async def main() -> None:
        scene = Scene()
        scene.follower_state.moved(scene.replica, 0.5)
        await asyncio.sleep(0.3)
        scene.follower_state.moved(scene.replica, 0.5)
        await asyncio.sleep(9.0)
        assert scene.answered == [0.5]
        assert not scene.follower_state.has_grown

    run_virtually(main())


def test_one_that_may_not_wait_does_not() -> None:
    async def main() -> None:
        scene = Scene()
        scene.follower_state.moved(scene.replica, 0.0)
        await asyncio.sleep(1.0)
        assert scene.answered == [0.0]

    run_virtually(main())


def test_what_is_appended_does_not_wait_for_what_moved() -> None:
    async def main() -> None:
        scene = Scene()
        scene.follower_state.moved(scene.replica, 5.0)
        scene.follower_state.grown(scene.replica)
        await asyncio.sleep(20.0)
        assert scene.answered == [0.0]
        assert scene.attempts == 1, "its timer went on"

    run_virtually(main())


def test_news_of_before_the_fetch_give_it_an_end() -> None:
    async def main() -> None:
        scene = Scene(0.5)
        await asyncio.sleep(9.0)
        assert scene.answered == [0.5]

    run_virtually(main())


def test_the_fetch_of_an_abandoned_connection_is_dropped() -> None:
    async def main() -> None:
        scene = Scene()
        first = scene.answer
        scene.delay()
        assert first.done
        scene.follower_state.grown(scene.replica)
        await asyncio.sleep(1.0)
        assert scene.attempts == 1
        assert scene.answered == [0.0]

    run_virtually(main())


def test_a_connection_that_closes_late_leaves_the_next_fetch_waiting() -> None:
    async def main() -> None:
        scene = Scene()
        first = scene.answer
        scene.delay()
        first.cancel()
        scene.follower_state.grown(scene.replica)
        await asyncio.sleep(1.0)
        assert scene.answered == [0.0]

    run_virtually(main())


def test_a_nudge_ends_the_wait_or_is_kept_for_the_next_fetch() -> None:
    async def main() -> None:
        scene = Scene()
        scene.follower_state.wake()
        await asyncio.sleep(1.0)
        assert scene.answered == [0.0]
        assert not scene.follower_state.take_woken()
        scene.follower_state.wake()
        assert scene.follower_state.take_woken()
        assert not scene.follower_state.take_woken()

    run_virtually(main())


def test_a_follower_that_goes_leaves_no_timer() -> None:
    async def main() -> None:
        scene = Scene()
        scene.follower_state.moved(scene.replica, 5.0)
        scene.answer.cancel()
        await asyncio.sleep(9.0)
        assert (scene.answered, scene.attempts) == ([], 0)

    run_virtually(main())
