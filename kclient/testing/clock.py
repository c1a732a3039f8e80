"""Virtual time: an event loop on which an hour of waiting takes no time, made random by a seed.

``run_virtually`` is ``asyncio.run`` on a ``VirtualLoop``. When nothing can run, its clock jumps to
the next timer; without a timer all tasks would wait for ever, and it raises ``Deadlock``, which
names each task and where it waits. It has no sockets and no threads: connections go to its
``MemoryNet``, and executor jobs run in callbacks. Nothing here may use real time or true
randomness.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import math
import random
from asyncio.events import _get_running_loop
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NoReturn, TypeVar

from kclient.errors import BrokerUnreachable, InvalidArgument
from kclient.hooks import DialTarget
from kclient.testing.arguments import is_number
from kclient.testing.memory_net import Listener, MemoryNet, checked_seed

T = TypeVar("T")

START = 1_000.0
"""The clock's first reading, in seconds; a 0 would hide code that takes 0 for "never"."""
WALL_START_NS = 1_767_225_600_000_000_000
"""The wall clock's first reading: 2026-01-01, midnight UTC, in nanoseconds since the epoch."""
JOB_SECONDS = 0.001
"""Longest duration of an executor job, in virtual seconds."""
SPIN_SECONDS = 0.001
"""Least virtual time that ``max_rounds`` loop iterations take unless something spins."""
EFFORT_STEP = 0.0001
"""Seconds of work that each reading of ``effort`` counts for."""


class Stuck(RuntimeError):
    """A run on virtual time can't continue."""


class Deadlock(Stuck):
    """All tasks wait and no timer is set. The text names every task and where each waits."""


class Livelock(Stuck):
    """Callbacks schedule one another and next to no time passes."""


class OutOfTime(Stuck):
    """The run took longer than its limit of virtual time. The text names every task.

    Open clients have timers, so with them a deadlock of other tasks raises this error instead.
    """


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop of virtual time.

    Args:
        seed: Of all randomness: the network's, the clients', and how long jobs take.
        limit: Virtual seconds after which ``OutOfTime`` is raised; None for no limit.
        network: Where connections go; one with the same seed by default.
        max_rounds: Loop iterations in less than a virtual millisecond after which ``Livelock`` is
            raised.

    Raises:
        InvalidArgument: A seed that isn't an int, or a limit that isn't a duration.

    Attributes:
        network: As given or made here.
        rng: Seeded; for whatever a test draws.
        kclient_surroundings: The loop itself: clients of kclient look for it.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        limit: float | None = 86_400.0,
        network: MemoryNet | None = None,
        max_rounds: int = 200_000,
    ) -> None:
        super().__init__()
        try:
            _check(seed, limit, network)
        except BaseException:
            self.close()
            raise
        self._now = START
        self._end = None if limit is None else START + limit
        self._limit = limit
        self._max_rounds = max_rounds
        self._rounds = 0
        self._rounds_since = START
        self._signals: dict[int, Callable[[], object]] = {}
        self._effort = 0.0
        self._selector = _Idle(self)
        self.rng = random.Random(seed)
        self.network = MemoryNet(seed=seed) if network is None else network

    def time(self) -> float:
        """Virtual seconds; they pass only while no callback can run."""
        return self._now

    @property
    def _clock_resolution(self) -> float:
        """How early asyncio runs timers: 0 here, as an early timer would be set again for ever."""
        return math.ulp(self._now)

    @_clock_resolution.setter
    def _clock_resolution(self, value: float) -> None:
        """Ignored: the base class sets the resolution of the machine's clock."""

    # Looked up by kclient's clients: ``clock.LoopEnvironment``

    @property
    def kclient_surroundings(self) -> VirtualLoop:
        return self

    @property
    def dialer(self) -> MemoryNet:
        """The network, which clients open their connections on."""
        return self.network

    def wall_ns(self) -> int:
        """Nanoseconds since the epoch; begins at 2026-01-01 and goes with ``time``."""
        return WALL_START_NS + round((self._now - START) * 1e9)

    def effort(self) -> float:
        """Seconds of work: each reading of it adds a small constant."""
        self._effort += EFFORT_STEP
        return self._effort

    # Connections

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        sock: object = None,
        **ignored: object,
    ) -> Listener:
        """Listen on the network."""
        if ssl is not None or sock is not None or not isinstance(host, str | None):
            _refuse("a listener by socket, at several hosts, or with TLS")
        return self.network.listen(protocol_factory, host or "localhost", port or 0)

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        **ignored: object,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect on the network; raises OSError, as a loop with sockets does."""
        if host is None or port is None or ssl is not None:
            _refuse("a connection by socket, or with TLS")
        try:
            return await self.network.dial(DialTarget(host, port), protocol_factory)
        except BrokerUnreachable as error:
            if isinstance(error.__cause__, OSError):
                raise error.__cause__ from None
            raise

    async def getaddrinfo(self, host: Any, port: Any, **ignored: Any) -> NoReturn:
        """Refused: the network resolves names, see ``MemoryNet.set_name``."""
        _refuse("a name look-up")

    async def sock_connect(self, sock: Any, address: Any) -> NoReturn:
        """There are no sockets."""
        _refuse("a socket")

    async def create_datagram_endpoint(self, *args: Any, **ignored: Any) -> NoReturn:
        """There are no datagrams."""
        _refuse("datagrams")

    async def create_unix_server(self, *args: Any, **ignored: Any) -> NoReturn:
        """There are no sockets."""
        _refuse("a socket in the file system")

    async def create_unix_connection(self, *args: Any, **ignored: Any) -> NoReturn:
        """There are no sockets."""
        _refuse("a socket in the file system")

    def add_reader(self, *args: Any) -> NoReturn:  # type: ignore[override]
        """There are no files to wait for."""
        _refuse("files that are waited for")

    def add_writer(self, *args: Any) -> NoReturn:  # type: ignore[override]
        """There are no files to wait for."""
        _refuse("files that are waited for")

    # The rest of a process

    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Callable[..., object], *args: Any
    ) -> None:
        """Register the callback to run when ``raise_signal`` is called."""
        self._signals[sig] = functools.partial(callback, *args)

    def remove_signal_handler(self, sig: int) -> bool:
        """Remove the callback; return whether there was one."""
        return self._signals.pop(sig, None) is not None

    def raise_signal(self, sig: int) -> None:
        """Deliver a signal, such as SIGTERM, to the service under test; the process gets none."""
        if sig not in self._signals:
            raise InvalidArgument(f"sig={sig!r}: nobody has added a handler for it")
        self.call_soon(self._signals[sig])

    async def subprocess_exec(self, *args: Any, **ignored: Any) -> NoReturn:
        """There are no other processes."""
        _refuse("other processes")

    async def subprocess_shell(self, *args: Any, **ignored: Any) -> NoReturn:
        """There are no other processes."""
        _refuse("other processes")

    # Threads

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run the job in a callback, a moment later: the seed decides in which order jobs end."""
        future: asyncio.Future[T] = self.create_future()
        context = contextvars.copy_context()

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(context.run(func, *args))
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                future.set_exception(error)

        self.call_later(self.rng.uniform(0, JOB_SECONDS), run)
        return future

    # Called by the base class

    def _write_to_self(self) -> None:
        pass

    def _process_events(self, event_list: Sequence[object]) -> None:
        pass

    def idle(self, timeout: float | None) -> None:
        """Nothing can run for ``timeout`` seconds: advance the clock."""
        if timeout is None:
            raise Deadlock(
                "everybody waits and no timer is set (threads are not waited for):\n"
                + "\n".join(_waiting(self))
            )
        self._rounds += 1
        if self._rounds > self._max_rounds:
            self._rounds = 0  # so that the remaining tasks can be cancelled
            raise Livelock(
                f"{self._max_rounds} rounds and next to no time has passed; tasks:\n"
                + "\n".join(_waiting(self))
            )
        if timeout <= 0:
            return
        if self._now >= self._rounds_since + SPIN_SECONDS:
            self._rounds, self._rounds_since = 0, self._now
        scheduled: Any = self._scheduled  # type: ignore[attr-defined]
        # Exactly the timer's time: a sum of floats may be less.
        self._now = max(self._now, scheduled[0].when())
        if self._end is not None and self._now > self._end:
            self._end = self._now + (self._limit or 0.0)  # time to cancel the remaining tasks
            raise OutOfTime(
                f"the run took more than {self._limit:g} virtual seconds; tasks:\n"
                + "\n".join(_waiting(self))
            )


class _Idle:
    """Takes the place of a loop's selector."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> Sequence[object]:
        self._loop.idle(timeout)
        return ()


def run_virtually(
    main: Coroutine[Any, Any, T],
    *,
    seed: int = 0,
    limit: float | None = 86_400.0,
    network: MemoryNet | None = None,
) -> T:
    """Run a coroutine on a loop of virtual time, as ``asyncio.run`` does on a real one.

    Args:
        main: What to run.
        seed: Decides all that is random; the same seed gives the same run.
        limit: Virtual seconds that it may take; None for no limit.
        network: Where connections go; one with the same seed by default.

    Returns:
        What ``main`` returns.

    Raises:
        Deadlock: All tasks waited and no timer was set.
        Livelock: Callbacks scheduled one another and no time passed.
        OutOfTime: It took longer than ``limit``. A deadlock raises this error while clients are
            open, as their timers go on: a limit of minutes reveals it at once.
        InvalidArgument: ``main`` is not a coroutine, or another argument is invalid.

    Example::

        async def main() -> None:
            async with kclient.testing.Cluster() as cluster:
                cluster.create_topic("flights")
                async with kclient.Producer(cluster.bootstrap) as producer:
                    await producer.send("flights", b"UA 1545")

        kclient.testing.run_virtually(main(), seed=7)
    """
    if not asyncio.iscoroutine(main):
        raise InvalidArgument(f"main={main!r} must be a coroutine: call the async function")
    if _get_running_loop() is not None:
        main.close()
        raise RuntimeError(
            "run_virtually makes a loop of its own, so it can't be called where one is running: "
            "await the coroutine, or make the test a plain function"
        )
    try:
        loop = VirtualLoop(seed=seed, limit=limit, network=network)
    except BaseException:
        main.close()
        raise
    runner = asyncio.Runner(loop_factory=lambda: loop)
    try:
        result = runner.run(main)
    except BaseException as error:
        error.add_note(f"on virtual time with seed={seed}, which gives the same run again")
        with contextlib.suppress(Stuck):  # remaining tasks may be stuck: hide no first error
            runner.close()
        raise
    runner.close()
    return result


def _check(seed: int, limit: float | None, network: MemoryNet | None) -> None:
    checked_seed(seed)
    if limit is not None and (not is_number(limit) or limit <= 0):
        raise InvalidArgument(f"limit={limit!r} must be seconds above 0, or None")
    if network is not None and not isinstance(network, MemoryNet):
        raise InvalidArgument(f"network={network!r} must be a MemoryNet")


def _refuse(what: str) -> NoReturn:
    raise NotImplementedError(
        f"a loop of virtual time has no place for {what}; connections go to its network"
    )


def _waiting(loop: asyncio.AbstractEventLoop) -> list[str]:
    # The application's tasks first: those of clients wait all the time.
    tasks = sorted(
        asyncio.all_tasks(loop),
        key=lambda task: (task.get_name().startswith("kclient:"), task.get_name()),
    )
    return [f"  {task.get_name()}: {_where(task.get_coro())}" for task in tasks]


def _where(coroutine: Any) -> str:
    """The chain of awaits, the innermost last."""
    places: list[str] = []
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is None:
            break
        code = frame.f_code
        places.append(
            f"{code.co_qualname} ({code.co_filename.rpartition('/')[2]}:{frame.f_lineno})"
        )
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return " > ".join(places) or repr(coroutine)
