"""What comes between the response to a member's request and the task that waits for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kclient.errors import KafkaError
from kclient.group.member import MemberState
from kclient.testing import Cluster, run_virtually
from tests.virtual.members import Worker, until


class Between:
    """Does something to a member in the loop iteration in which the response to a request arrives.

    Attributes:
        done: It has done it.
    """

    def __init__(self, worker: Worker, api: str, how: str) -> None:
        self._worker, self._api, self._how = worker, api, how
        self._send = worker.coordinator.send
        worker.coordinator.send = self.send  # type: ignore[method-assign]
        self._now = asyncio.Event()
        self._leaving = asyncio.ensure_future(self._leave())
        self.done = False

    def send(self, node_id: int, request: Any, *, api: Any, **options: Any) -> Any:
        """In place of the coordinator's."""
        sent = self._send(node_id, request, api=api, **options)
        if api.NAME == self._api and not self.done:
            # Before the task's own listener, so that what is done comes before its wake-up.
            loop = asyncio.get_running_loop()
            sent.add_listener(lambda answer: self._meddle(loop, answer))
        return sent

    def _meddle(self, loop: asyncio.AbstractEventLoop, answer: Any) -> None:
        if answer.succeeded and not answer.result().error_code and not self.done:
            self.done = True
            self._now.set()
            loop.call_soon(self._do)

    def _do(self) -> None:
        member = self._worker.member
        if self._how == "over":
            member.over(KafkaError("a heartbeat was refused"), forget_id=True)
        elif self._how == "fail":
            member.fail(KafkaError("a heartbeat was refused for good"))

    async def _leave(self) -> None:
        await self._now.wait()
        if self._how == "leave":
            await self._worker.member.leave("a test")


@pytest.mark.parametrize("how", ["leave", "over", "fail"])
@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup"])
def test_a_response_to_a_former_member_is_not_used(api: str, how: str) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            worker = Worker(cluster, "w0")
            between = Between(worker, api, how)
            await worker.start()
            await until(lambda: between.done)
            await asyncio.sleep(1)
            assert worker.core.failure is None
            if how == "fail":
                assert worker.state is MemberState.FAILED
                assert worker.failure is not None
            else:
                if how == "leave":
                    assert worker.state is MemberState.OUTSIDE
                    worker.member.rejoin("again")
                await until(lambda: worker.stable, 30.0)
            await worker.stop()

    run_virtually(main())
