"""``ThreadedCluster``: a cluster for code without an event loop of its own, in a thread.

For plain tests and for blocking clients of any library. The pytest fixture makes one for each test
that doesn't run in a loop. Its methods are executed in the cluster's loop.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kclient.errors import InvalidArgument
from kclient.testing.arguments import seconds_of
from kclient.testing.cluster import Cluster
from kclient.testing.thread_proxy import WAIT_TIMEOUT, LoopThread, ThreadProxy

if TYPE_CHECKING:
    from collections.abc import Callable

    from kclient.testing.api_versions import ApiName
    from kclient.testing.event_log import E, EventLog
    from kclient.testing.request_log import Condition, RequestLog, ServedRequest

    class _BlockingLog(RequestLog):
        def wait_count(  # type: ignore[override]
            self,
            api: ApiName,
            count: int,
            *,
            replicas: bool = False,
            timeout: float | None = WAIT_TIMEOUT,
        ) -> None: ...
        def wait_for(  # type: ignore[override]
            self,
            what: ApiName | Condition,
            *,
            broker: int | None = None,
            answered: bool = False,
            replicas: bool = False,
            timeout: float | None = WAIT_TIMEOUT,
        ) -> ServedRequest: ...

    class _BlockingEvents(EventLog):
        def wait_for(  # type: ignore[override]
            self,
            kind: type[E],
            condition: Callable[[E], bool] | None = None,
            *,
            timeout: float = 10.0,
        ) -> E: ...

    class _BlockingCluster(Cluster):
        """For type checkers: a ``Cluster`` whose coroutines are plain functions."""

        requests: _BlockingLog
        events: _BlockingEvents
        _thread: LoopThread

        def stop(self, broker: int) -> None: ...  # type: ignore[override]
        def crash(self, broker: int) -> None: ...  # type: ignore[override]
        def restart(  # type: ignore[override]
            self, broker: int, *, in_sync_within: float = 1.0
        ) -> None: ...
        def add_broker(self, *, rack: str | None = None) -> int: ...  # type: ignore[override]
        def remove_broker(self, broker: int) -> None: ...  # type: ignore[override]
        def wait_in_sync(  # type: ignore[override]
            self, *brokers: int, timeout: float = 10.0
        ) -> None: ...
        def move(  # type: ignore[override]
            self, broker: int, *, host: str | None = None, port: int = 0
        ) -> None: ...
        def swap_addresses(self, one: int, other: int) -> None: ...  # type: ignore[override]

else:
    _BlockingCluster = ThreadProxy


class ThreadedCluster(_BlockingCluster):
    """A ``Cluster`` in a thread of its own: it has all that a ``Cluster`` has, without ``await``.

    Each call, on it and on the objects it returns (``faults``, ``requests``, ``events``, a log), is
    executed in the cluster's loop while the caller waits; coroutines are waited for. Values are
    returned as they are (records, ``Tally``, ``CleanResult``), live objects as proxies that have
    all attributes of the real one (a fault, a broker, a log, a ``ServedRequest``). Any thread may
    call.

    Functions that are passed in (hooks, listeners, conditions) run in the cluster's thread. There
    plain methods act at once, and those that wait elsewhere must be awaited, as with ``Cluster``::

        async def crash(info):
            await cluster.crash(info.broker)

        cluster.faults.on("Produce", crash, at="after_append", times=1)

    A plain ``def`` hook may return the coroutine instead, a listener may pass it to
    ``asyncio.get_running_loop().create_task``. If a function does neither, the end of the cluster,
    or ``faults.check``, raises WrongContext. Functions and the test must not wait for each other.

    Args:
        cluster: A cluster that isn't started.
        call_timeout: Seconds that a call may take; None for ever. Calls that wait until something
            happens have a shorter ``timeout`` of their own: 30 s for ``requests.wait_for``,
            ``requests.wait_count`` and ``wait_hits`` of a fault.

    Raises:
        InvalidArgument: ``cluster`` isn't a ``Cluster``, or ``call_timeout`` isn't a duration.
        RequestTimedOut: By any call that takes longer than ``call_timeout``.
        ClientClosed: By calls that change something, when the cluster isn't started or was closed.

    Example::

        with ThreadedCluster(Cluster(brokers=3)) as cluster:
            cluster.create_topic("flights")
            cluster.faults.error("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER)
            producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
            producer.produce("flights", b"UA 1545")
            producer.flush()
            cluster.crash(cluster.leader("flights"))
    """

    __slots__ = ()

    def __init__(self, cluster: Cluster, *, call_timeout: float | None = 60.0) -> None:
        if not isinstance(cluster, Cluster):
            raise InvalidArgument(f"cluster={cluster!r} must be a Cluster that isn't started")
        if call_timeout is not None:
            seconds_of("call_timeout", call_timeout)
        thread = LoopThread(cluster, call_timeout)
        ThreadProxy.__init__(self, cluster, thread, cluster.faults.failed)  # type: ignore[arg-type]

    def __enter__(self) -> Self:
        """``start``."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """``close``."""
        self.close()

    if not TYPE_CHECKING:

        async def __aenter__(self) -> Any:
            """Refused: the error names what to do instead. Cancellation: safe."""
            raise TypeError("`with` is needed for a ThreadedCluster, or a Cluster for `async with`")

        async def __aexit__(self, *error: object) -> None:
            """Is never called, but ``async with`` looks it up. Cancellation: safe."""

    def start(self) -> None:  # type: ignore[override]
        """Start the thread, and the cluster in it; does nothing when it is started.

        Raises:
            OSError: A listener can't be opened.
            ClientClosed: It was closed.
            WrongContext: The cluster is started in another loop or thread.
        """
        self._thread.start()

    def close(self) -> None:  # type: ignore[override]
        """Close the cluster and end its thread; the logs stay readable. Twice is fine.

        Raises:
            WrongContext: Called by a function that runs in that thread.
            Exception: Whatever a function of the test raised meanwhile.
        """
        self._thread.end()
