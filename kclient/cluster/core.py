"""ClientCore: what Producer, Consumer and Admin share, and the only place that puts it together.

Network, metadata, calls, hooks, counters, the supervision of internal tasks, the check of loop,
thread and process, health and metrics. Start and close are in order and bounded. It knows nothing
of records, groups or topics administration. ``AsyncOnly`` is the base of clients: what they raise
for habits of other clients. Type checkers don't see it, so that they find the mistake first.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kclient.backoff import Backoff
from kclient.clock import Clock, SystemClock, loop_environment
from kclient.cluster.bootstrap import Bootstrap
from kclient.cluster.calls import Calls
from kclient.cluster.metadata import MetadataState
from kclient.cluster.supervision import Closing, Supervisor
from kclient.cluster.updater import MetadataUpdater
from kclient.errors import ClientClosed, KafkaError, a_or_an
from kclient.frozen import Frozen, Snapshot, frozen
from kclient.hooks import Counters, Hooks, Observer, require_method
from kclient.network import NetworkClient

if TYPE_CHECKING:
    from kclient.config import CommonConfig
    from kclient.hooks import Dialer
    from kclient.network.health import ConnectionHealth, NodeHealth


logger = logging.getLogger("kclient.cluster")

T = TypeVar("T")

CLOSE_TIMEOUT = 5.0
"""Seconds that ``close`` takes at most by default: few things but sockets are left."""
LAST_MOMENT = 0.1
"""Seconds for what was written to leave, where the close of a client has no time left."""

_made = itertools.count(1)
"""Numbers the clients of this process."""
BACKOFF_FLOOR = 0.01
"""Seconds before metadata, fetches, lookups and commits are tried again at least, even where
``retry_backoff`` is 0."""


class AsyncOnly:
    """A client that is entered with ``async with``."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __enter__(self) -> Any:
            raise TypeError(f"`async with` is needed for {a_or_an(type(self).__name__)}")

        def __exit__(self, *error: object) -> None:
            """Is never called, but ``with`` looks for it before it enters."""


def missing_attribute(client: object, name: str) -> Any:
    """Raise the usual AttributeError, with our counterpart if another client has the name.

    The ``__getattr__`` of clients. It must not read an attribute of ``client``, which may be half
    made.
    """
    text = f"{type(client).__name__!r} object has no attribute {name!r}"
    if not name.startswith("_"):
        from kclient.foreign_methods import answer  # only errors need it

        instead = answer(type(client), name)
        if instead is not None:
            text = f"{text}: {instead}"
    raise AttributeError(text)


@frozen
class Health(Snapshot, Frozen):
    """A snapshot of how a client is.

    Attributes:
        name: The client's, as log lines begin with it.
        state: ``new``, ``starting``, ``running``, ``failed`` (an internal task died) or
            ``closed``.
        cluster_id: Of the cluster that it is connected to; None before that.
        brokers: How many brokers are known.
        topics: How many topics are kept fresh.
        metadata_age: Seconds since all metadata was last refreshed; None before that.
        metadata_error: Why the latest refresh failed, as text; None after one that didn't.
        failure: Why the client is of no more use, as text; None if it is.
        connections: One entry per connection.
        nodes: One entry per broker, and per bootstrap address that was tried: how long ago it
            last answered and last failed, and what is under way to it.
        tasks: Names of the internal tasks that run.
        restarts: How often an internal task was restarted after it had been killed from outside.
        ok: It runs, and the latest refresh of metadata succeeded. Without requests that is known
            only after ``metadata_max_age`` seconds.
    """

    name: str
    state: str
    cluster_id: str | None
    brokers: int
    topics: int
    metadata_age: float | None
    metadata_error: str | None
    failure: str | None
    connections: Sequence[ConnectionHealth]
    nodes: Sequence[NodeHealth]
    tasks: tuple[str, ...]
    restarts: int

    @property
    def ok(self) -> bool:
        """It runs, and the latest refresh of metadata succeeded."""
        return self.state == "running" and self.metadata_error is None


class ClientCore:
    """The shared inside of a client. The constructor does no I/O and touches no loop.

    Tasks: ``metadata`` (see ``MetadataUpdater``), started by ``start`` and stopped by ``close``;
    those that ``spawn`` is given run until ``stop`` or ``close``; ``close`` while that is at work;
    ``dial-...`` while a connection is opened.

    Args:
        config: Settings.
        dialer: Opens connections; sockets by default.
        clock: Time; the loop's by default.
        observers: Receive events.
        rng: For the jitter of waits.

    Raises:
        InvalidConfig: ``dialer`` can't dial.

    Attributes:
        config, clock, rng, hooks, counters: As given or made here.
        name: Of this client among those of its process, for log lines.
        network: The connections.
        metadata: The view of the cluster, and its refresh.
        calls: Requests with retries.
        backoff: The schedule of ``retry_backoff``, never 0.
        check_usable: Raises unless the client can be used, here and now: ``ClientClosed``,
            ``WrongContext`` (another loop, thread or process than that of ``start``) or
            ``BackgroundTaskDied``. Cheap enough for every record.
    """

    def __init__(
        self,
        config: CommonConfig,
        *,
        dialer: Dialer | None = None,
        clock: Clock | None = None,
        observers: Sequence[Observer] = (),
        rng: random.Random | None = None,
    ) -> None:
        if dialer is not None:
            require_method("dialer", dialer, "dial", "target, protocol_factory", may_await=True)
        self.config = config
        self.clock: Clock = clock if clock is not None else SystemClock()
        self._own_clock = clock is None
        self.rng = rng if rng is not None else random.Random()
        self._own_rng, self._own_dialer = rng is None, dialer is None
        self.name = _name_of(config)
        self.hooks = Hooks(observers, self.name)
        self._log = self.hooks.log(logger)
        self.counters = Counters()
        self._supervisor = Supervisor(self.hooks, self.counters, self._fail)
        # An attribute, not a method around it: it is called for every record.
        self.check_usable: Callable[[], None] = self._supervisor.check
        self.network = NetworkClient(
            config,
            clock=self.clock,
            dialer=dialer,
            hooks=self.hooks,
            counters=self.counters,
            rng=self.rng,
            supervisor=self._supervisor,
        )
        initial = max(config.retry_backoff, BACKOFF_FLOOR)
        self.backoff = Backoff(initial, max(config.retry_backoff_max, initial))
        self.metadata = MetadataUpdater(
            MetadataState(config, self.backoff, self.rng),
            self.network,
            clock=self.clock,
            hooks=self.hooks,
            counters=self.counters,
            allow_auto_create=config.allow_auto_create_topics,
        )
        self.calls = Calls(
            self.network,
            self.metadata,
            config,
            clock=self.clock,
            rng=self.rng,
            counters=self.counters,
        )
        self._end_listeners: list[Callable[[KafkaError], object]] = []
        self._failure_listeners: list[Callable[[KafkaError], object]] = []
        self._state = "new"
        self._closing = Closing(self._supervisor, self.clock, "close", self._close)

    def check_context(self) -> None:
        """Raise WrongContext in another loop, thread or process than ``start`` was called in."""
        self._supervisor.check_context()

    def check_new(self) -> None:
        """Raise ClientClosed unless ``start`` may be called: once, and not after ``close``."""
        if self._state == "new":
            return
        if self.closed:
            raise ClientClosed("this client was closed, so it can't start", hint="make a new one")
        if self.failure is not None:
            raise ClientClosed(
                "this client was started before and has failed", hint="close it and make a new one"
            )
        doing = "starting" if self._state == "starting" else "running"
        raise ClientClosed(
            f"this client is {doing} already",
            hint="call start() once; 'async with' calls it, too",
        )

    async def start(self) -> None:
        """Find a broker and learn the cluster. After it, the client can be used.

        Raises:
            BootstrapFailed: No bootstrap address led to a cluster within ``bootstrap_timeout``;
                nothing stays open.
            ClientClosed: It was started or closed before.

        Cancellation: nothing stays open; the client counts as closed.
        """
        self.check_new()
        self._state = "starting"
        self._supervisor.enter()
        self._settle()
        try:
            await self.network.start()
            bootstrap = Bootstrap(
                self.metadata,
                self.network,
                clock=self.clock,
                backoff=self.backoff,
                rng=self.rng,
            )
            await bootstrap.run(self.config.bootstrap_timeout)
            if self.closed:
                raise ClientClosed("this client was closed while it started")
        except BaseException:
            await self.close(1.0)
            raise
        self.spawn(self.metadata.run(), "metadata", endless=True)
        self._state = "running"

    def _settle(self) -> None:
        """Be at home in the loop: its environment, if any, stands in for all that wasn't given."""
        if isinstance(self.clock, SystemClock):
            self.clock.use_environment()
            if self._own_clock:
                self.clock.bind_to_loop()
        world = loop_environment()
        if world is None:
            return
        if self._own_rng:
            self.rng.seed(world.rng.getrandbits(64))
        if self._own_dialer:
            self.network.use_dialer(world.dialer)

    async def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """End all internal tasks and connections. Twice, or before ``start``, is fine.

        Waiters inside the client get ``ClientClosed``. What a client wants to finish first
        (flush, commit), it does before it calls this.

        Args:
            timeout: Seconds after which connections are cut off. Of several calls at once, the
                one with the least time counts.

        Raises:
            WrongContext: Called from another loop, thread or process than ``start``.

        Cancellation: it is closed all the same.
        """
        self._supervisor.check_context()
        if self._state in ("new", "closed"):
            self._state = "closed"
            self._supervisor.shut()
            return
        await self._closing.run(timeout)

    async def _close(self) -> None:
        self._end(ClientClosed("this client is closed", hint="make a new one"))
        try:
            await self._supervisor.close()
        finally:
            await self._disconnect()
        self._state = "closed"

    async def _disconnect(self) -> None:
        try:
            async with self._closing.limit():
                await self.network.close(self._closing.time_left)
        except TimeoutError:  # another caller has less time
            await self.network.close(0.0)

    def _fail(self, error: KafkaError) -> None:
        self._notify(self._failure_listeners, error)
        self._end(error)
        # Later, as this may be said from inside of a connection.
        asyncio.get_running_loop().call_soon(self.network.fail, error)

    def _end(self, error: KafkaError) -> None:
        self.metadata.end(error)
        self.calls.end(error)
        self._notify(self._end_listeners, error)

    def _notify(
        self, listeners: Sequence[Callable[[KafkaError], object]], error: KafkaError
    ) -> None:
        """Call each, also where another one raises."""
        for listener in listeners:
            try:
                listener(error)
            except Exception:
                self._log.exception("a listener failed while a client ended")

    def add_end_listener(self, listener: Callable[[KafkaError], object]) -> None:
        """Have ``listener(error)`` called when an internal task dies, and when ``close`` begins.

        For components with waiting callers: they must fail them with ``error``. It must not raise.
        """
        self._end_listeners.append(listener)

    def add_failure_listener(self, listener: Callable[[KafkaError], object]) -> None:
        """Have ``listener(error)`` called once, when an internal task dies. It must not raise."""
        self._failure_listeners.append(listener)

    def spawn(
        self, coroutine: Coroutine[Any, Any, Any], name: str, *, endless: bool = False
    ) -> asyncio.Task[Any]:
        """Run an internal task under supervision.

        If it raises, is cancelled other than through ``stop``, or returns though it is
        ``endless``, the client has failed: all other tasks and connections are ended, and whatever
        waits, and the next call of any kind, gets ``BackgroundTaskDied`` with the reason.
        """
        return self._supervisor.spawn(coroutine, name, endless=endless)

    def closing(self, name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> Closing[T]:
        """The end of a client that has more to do than this core, which it closes at last."""
        return Closing(self._supervisor, self.clock, name, work)

    async def stop(self, *tasks: asyncio.Task[Any]) -> None:
        """Cancel tasks of ``spawn`` on purpose, and wait for their end.

        Cancellation: they are cancelled all the same.
        """
        await self._supervisor.stop(*tasks)

    @property
    def closed(self) -> bool:
        """``close`` was called, or ``start`` failed."""
        return self._closing.begun or self._state == "closed"

    @property
    def failure(self) -> KafkaError | None:
        """Why the client is of no more use: an internal task died. None if all is well."""
        return self._supervisor.failure

    @property
    def state(self) -> str:
        """As ``Health.state`` has it."""
        state = "closed" if self.closed else self._state
        return "failed" if state == "running" and self.failure is not None else state

    def client_repr(self, kind: str) -> str:
        """Return the repr of the client of that kind: its name, state and bootstrap addresses."""
        bootstrap = ",".join(node.address for node in self.network.bootstrap_nodes)
        return f"<kclient.{kind} {self.name!r} {self.state} bootstrap={bootstrap}>"

    def health(self) -> Health:
        """A snapshot of how the client is; free to call at any time.

        Raises:
            WrongContext: Called from another loop, thread or process than ``start``.
        """
        self.check_context()
        view, state = self.metadata.view, self.state
        refreshed = self.metadata.refreshed_at
        error = self.metadata.last_error
        return Health(
            name=self.name,
            state=state,
            cluster_id=view.cluster_id,
            brokers=len(view.brokers),
            topics=len(view.topics),
            metadata_age=self.clock.now() - refreshed if view.version else None,
            metadata_error=None if error is None else str(error),
            failure=None if self.failure is None else str(self.failure),
            connections=self.network.snapshot() if state in ("running", "failed") else (),
            nodes=self.network.node_snapshot() if state in ("running", "failed") else (),
            tasks=self._supervisor.tasks,
            restarts=self._supervisor.restarts,
        )

    def metrics(self) -> dict[str, float]:
        """All counters and gauges by name, ``package.what``."""
        return self.counters.snapshot()


def _name_of(config: CommonConfig) -> str:
    """Such as ``kclient producer-3``: clients of one ``client_id`` are numbered."""
    kind = type(config).__name__.removesuffix("Config").lower()
    return f"{config.client_id} {kind}-{next(_made)}"
