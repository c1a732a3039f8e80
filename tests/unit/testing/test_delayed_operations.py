"""A produce that waits for all in-sync replicas: its codes, its timing, what it leaves behind."""

from __future__ import annotations

import asyncio

import pytest

from kclient.error_codes import ErrorCode
from kclient.testing import run_virtually
from kclient.testing.delayed_operations import DelayedProduce, ProducePartitionStatus, all_settled
from kclient.testing.replica import Replica
from tests.unit.testing.test_replica import accept, append, copy, turn

SECONDS = 5.0


class Scene:
    """One request to some partitions, all with records that no follower has yet."""

    def __init__(self, *replicas: Replica) -> None:
        self.replicas = replicas
        self.codes: dict[int, ErrorCode] = {}
        waiting = []
        for index, replica in enumerate(replicas):
            append(replica, 2)
            waiting.append(
                ProducePartitionStatus(replica, 2, lambda code, at=index: self.settle(at, code))
            )
        self.wait = DelayedProduce(waiting, SECONDS, lambda: "response")
        self.came: list[tuple[str, float]] = []
        self.began = asyncio.get_running_loop().time()
        self.wait.answer.then(self.note)

    def settle(self, index: int, code: ErrorCode) -> None:
        assert index not in self.codes, "settled twice"
        self.codes[index] = code

    def note(self, response: str) -> None:
        self.came.append((response, asyncio.get_running_loop().time() - self.began))

    @property
    def listeners(self) -> int:
        return sum(one.log.listener_count for one in self.replicas)


def test_the_last_in_sync_replica_completes_it_and_nothing_is_left() -> None:
    async def main() -> None:
        scene = Scene(copy())
        (replica,) = scene.replicas
        assert scene.listeners == 1
        replica.fetched_by(2, 2, 0, 0.0)
        assert scene.came == []
        replica.fetched_by(3, 1, 0, 0.0)
        assert scene.came == [], "half of it is not all"
        replica.fetched_by(3, 2, 0, 0.0)
        assert scene.came == [], "answered in the midst of a fetch"
        await asyncio.sleep(0)
        assert scene.came == [("response", 0.0)]
        assert (scene.codes, scene.listeners) == ({0: ErrorCode.NONE}, 0)
        await asyncio.sleep(2 * SECONDS)
        assert len(scene.came) == 1

    run_virtually(main())


def test_every_partition_is_waited_for_until_the_time_is_over() -> None:
    async def main() -> None:
        one, two = copy(), copy()
        scene = Scene(one, two)
        for node_id in (2, 3):
            one.fetched_by(node_id, 2, 0, 0.0)
        await asyncio.sleep(2 * SECONDS)
        assert scene.came == [("response", SECONDS)]
        assert scene.codes == {0: ErrorCode.NONE, 1: ErrorCode.REQUEST_TIMED_OUT}
        assert scene.listeners == 0

    run_virtually(main())


@pytest.mark.parametrize("leader", [1, 2])
def test_an_election_ends_the_wait_whichever_broker_is_elected(leader: int) -> None:
    async def main() -> None:
        scene = Scene(copy())
        turn(scene.replicas[0], leader)
        scene.replicas[0].log.disturb()
        await asyncio.sleep(0)
        assert scene.codes == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        assert len(scene.came) == 1

    run_virtually(main())


def test_a_topic_that_is_deleted_is_unknown() -> None:
    async def main() -> None:
        scene = Scene(copy())
        scene.replicas[0].is_deleted = True
        scene.replicas[0].stand_down()
        scene.replicas[0].log.disturb()
        await asyncio.sleep(0)
        assert scene.codes == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    run_virtually(main())


def test_a_response_that_is_cancelled_before_it_leaves_never_comes() -> None:
    async def main() -> None:
        scene = Scene(copy(replicas=(1, 2)))
        scene.replicas[0].fetched_by(2, 2, 0, 0.0)
        scene.wait.answer.cancel()
        await asyncio.sleep(2 * SECONDS)
        assert (scene.came, scene.listeners) == ([], 0)

    run_virtually(main())


def test_an_isr_that_shrinks_completes_it_without_the_removed_replicas() -> None:
    async def main() -> None:
        scene = Scene(copy())
        accept(scene.replicas[0], (1,))
        await asyncio.sleep(0)
        assert scene.codes == {0: ErrorCode.NONE}

    run_virtually(main())


def test_too_few_in_sync_after_it_was_written_are_reported() -> None:
    async def main() -> None:
        replica = copy(min_isr=2)
        append(replica, 2)
        for node_id in (2, 3):
            replica.fetched_by(node_id, 2, 0, 0.0)
        accept(replica, (1,))
        codes: list[ErrorCode] = []
        late = ProducePartitionStatus(replica, 2, codes.append)
        assert late.look()
        assert late.look()
        assert codes == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]

    run_virtually(main())


def test_each_looks_though_the_first_one_waits() -> None:
    one, two = copy(), copy(replicas=(1,))
    append(one)
    append(two)
    codes: list[ErrorCode] = []
    waiting = [
        ProducePartitionStatus(one, 1, codes.append),
        ProducePartitionStatus(two, 1, codes.append),
    ]
    assert not all_settled(waiting)
    assert codes == [ErrorCode.NONE]
    assert [each.done for each in waiting] == [False, True]


def test_a_producer_that_goes_leaves_neither_timer_nor_listener() -> None:
    async def main() -> None:
        scene = Scene(copy(), copy())
        scene.wait.answer.cancel()
        assert scene.listeners == 0
        await asyncio.sleep(2 * SECONDS)
        assert scene.came == []

    run_virtually(main())
