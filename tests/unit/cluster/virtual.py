"""Virtual time for the cluster tests, and a network that responds from a script.

``run(coroutine)`` runs on a loop whose clock jumps to the next timer instead of waiting for it. It
raises `Deadlock` if every task waits and no timer is set.
"""

from __future__ import annotations

import asyncio
import math
import random
import selectors
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from kclient.config import CommonConfig
from kclient.errors import BrokerUnreachable, KafkaError
from kclient.network import Node, RequestFuture
from kclient.protocol.message import Request, Response

T = TypeVar("T")


class Deadlock(AssertionError):
    """Every task waits and no timer is set."""


class _JumpingSelector(selectors.SelectSelector):
    """Advances the loop's clock instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout is None:
            raise Deadlock("everybody waits and no timer is set")
        if not ready and timeout is not None:
            self.now += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that jumps to the next timer instead of waiting."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run to the end in virtual time, and fail if a task is left."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        result = runner.run(coroutine)
        left = asyncio.all_tasks(runner.get_loop())
        assert not left, f"tasks left: {left}"
    return result


async def turns(count: int = 10) -> None:
    """Run ``count`` loop iterations; virtual time stands still."""
    for _ in range(count):
        await asyncio.sleep(0)


class Answer:
    """A response that arrives after ``delay`` seconds."""

    def __init__(self, response: Response | KafkaError | None, delay: float = 0.0) -> None:
        self.response = response
        self.delay = delay


class FakeRaw:
    """The result of ``send(raw=True)``."""

    def __init__(self, body: bytes, version: int) -> None:
        self.body = memoryview(body)
        self.version = version
        self.released = False

    def release(self) -> None:
        self.released = True


Script = Callable[[int, Request, int], "Response | KafkaError | Answer | None"]
"""Maps (node, request, version) to a response or failure; None never responds."""


class FakeNetwork:
    """The part of ``NetworkClient`` that these tests use."""

    def __init__(
        self, script: Script, *, bootstrap: Iterable[int] = (-1,), version: int = 12
    ) -> None:
        self.script = script
        self.version = version
        self.bootstrap_nodes = tuple(Node(n, f"boot{-n}", 9092) for n in bootstrap)
        self.nodes: dict[int, Node] = {}
        self.sent: list[tuple[float, int, Request]] = []
        self.raws: list[FakeRaw] = []
        self.down: set[int] = set()
        self.closed = False
        self.started = False

    async def start(self) -> None:
        self.started = True

    async def close(self, timeout: float) -> None:
        self.closed = True

    def update_nodes(self, nodes: Iterable[Node]) -> None:
        self.nodes = {node.node_id: node for node in nodes}

    def least_loaded(self, node_ids: Iterable[int] | None = None, lane: int = 0) -> int | None:
        bootstrap = [node.node_id for node in self.bootstrap_nodes]
        ids = [*self.nodes, *bootstrap] if node_ids is None else list(node_ids)
        return next((n for n in ids if n not in self.down), None)

    def connection_error(self, node_id: int) -> Exception | None:
        return BrokerUnreachable("down") if node_id in self.down else None

    def snapshot(self) -> tuple[()]:
        return ()

    def send(
        self,
        node_id: int,
        request: Request | Callable[[int], Request],
        *,
        api: type[Request] | None = None,
        lane: int = 0,
        timeout: float | None = None,
        caller_deadline: float = math.inf,
        max_version: int | None = None,
        raw: bool = False,
    ) -> RequestFuture[Any]:
        loop = asyncio.get_running_loop()
        try:
            message = request if isinstance(request, Request) else request(self.version)
        except KafkaError as error:
            return RequestFuture.failed(error)
        self.sent.append((loop.time(), node_id, message))
        future: RequestFuture[Any] = RequestFuture()
        if node_id in self.down:
            said: Any = BrokerUnreachable(f"node {node_id} is down", node_id=node_id)
        else:
            said = self.script(node_id, message, self.version)
        reply = said if isinstance(said, Answer) else Answer(said)
        if reply.response is not None:
            loop.call_later(reply.delay, self._reply, future, reply.response, raw)
        return future

    def _reply(self, future: RequestFuture[Any], said: Response | KafkaError, raw: bool) -> None:
        if isinstance(said, KafkaError):
            future.fail(said)
        elif raw:
            self.raws.append(FakeRaw(said.encode(self.version), self.version))
            future.complete(self.raws[-1])
        else:
            future.complete(said)

    def requests(self, kind: type[Request]) -> list[Request]:
        """Return the requests of one kind that were sent."""
        return [message for _, _, message in self.sent if isinstance(message, kind)]


def config(**settings: Any) -> CommonConfig:
    """Settings with round numbers for these tests."""
    base = {"retry_backoff": 0.1, "retry_backoff_max": 1.0, "bootstrap": "boot1:9092"}
    return CommonConfig(**{**base, **settings})


class Steady(random.Random):
    """No jitter: ``random()`` always returns 0.5."""

    def random(self) -> float:
        return 0.5
