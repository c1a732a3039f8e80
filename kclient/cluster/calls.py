"""Calls: one request to the responsible node, repeated until it succeeds or its deadline.

For all requests but Produce and Fetch, whose loops have state of their own. Finds the node, sends,
lets the caller's ``check`` find the error in the response, and follows ``retry.retry_action``:
raise, wait for a newer view of the cluster, or back off. No rules of its own, and no task.
``fanout`` builds on the same ``RetryState`` for requests about many things at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from kclient.backoff import Backoff
from kclient.broker_errors import LeaderNotAvailable, UnknownTopicOrPartition
from kclient.cluster.retry import Attempts, NoSuchPartition, RetryAction, retry_action
from kclient.cluster.wakeups import Broadcast
from kclient.errors import BrokerUnreachable, KafkaError, MetadataTimedOut, broker_error, fresh
from kclient.frozen import Frozen, frozen
from kclient.protocol.message import Request
from kclient.types import TopicPartition

if TYPE_CHECKING:
    import random

    from kclient.clock import Clock
    from kclient.cluster.updater import MetadataUpdater
    from kclient.config import CommonConfig
    from kclient.hooks import Counters
    from kclient.network import NetworkClient, RequestBuilder

Check: TypeAlias = Callable[[Any], "int | KafkaError | None"]
"""Finds the error in a response: Kafka's code, an error made by the caller, or None or 0."""


@frozen
class AnyNode(Frozen):
    """The broker that has least to do."""

    def __str__(self) -> str:
        return "any broker"


@dataclass(frozen=True, slots=True)
class NodeTarget:
    """One broker, whatever happens."""

    node_id: int

    def __str__(self) -> str:
        return f"broker {self.node_id}"


@frozen
class ControllerTarget(Frozen):
    """The controller (in KRaft clusters: a broker that forwards to it)."""

    def __str__(self) -> str:
        return "the controller"


@dataclass(frozen=True, slots=True)
class LeaderTarget:
    """The leader of a partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"the leader of {self.topic}-{self.partition}"


Target: TypeAlias = AnyNode | NodeTarget | ControllerTarget | LeaderTarget
"""What a request is for. A plain value: its node is looked up again for each attempt."""


class Calls:
    """The retry loop of single requests. Has no tasks.

    Args:
        network: To send through.
        metadata: To find nodes with, and to wait for newer views.
        config: ``api_timeout``, ``request_timeout`` and the back-off.
    """

    def __init__(
        self,
        network: NetworkClient,
        metadata: MetadataUpdater,
        config: CommonConfig,
        *,
        clock: Clock,
        rng: random.Random,
        counters: Counters,
    ) -> None:
        self.network = network
        self.metadata = metadata
        self.config = config
        self.clock = clock
        self.rng = rng
        self.counters = counters
        self.backoff = Backoff(config.retry_backoff, config.retry_backoff_max)
        self._ended: KafkaError | None = None
        self._end = Broadcast()

    async def call(
        self,
        target: Target,
        request: RequestBuilder,
        *,
        api: type[Request] | None = None,
        timeout: float | None = None,
        check: Check | None = None,
        max_version: int | None = None,
        raw: bool = False,
    ) -> Any:
        """Send ``request`` to ``target`` and return the response.

        Args:
            target: ``AnyNode()``, ``NodeTarget(id)``, ``ControllerTarget()`` or
                ``LeaderTarget(topic, partition)``; looked up again for each attempt.
            request: A message, or a callable that makes it for the negotiated version.
            api: The request class; needed where ``request`` is a callable.
            timeout: Seconds for all attempts together; ``api_timeout`` by default.
            check: Finds the error in a response; without it every response is a success.
            max_version: Highest version to use.
            raw: Give the bytes (a ``RawResponse``), which the caller releases; without ``check``.

        Raises:
            BrokerError: What ``check`` found, if trying again won't help.
            RequestTimedOut: The deadline came first. The text says how the attempts failed, and
                ``__cause__`` is the last of the failures.
            NoCommonVersion: The broker is too old or too new for this API.
            ClientClosed, BackgroundTaskDied: The client ended meanwhile.

        Cancellation: abandons the answer only. A request that is under way may take effect.

        Example::

            response = await core.calls.call(
                ControllerTarget(), CreateTopicsRequest(...), check=lambda r: first_error(r)
            )
        """
        api = type(request) if isinstance(request, Request) else api
        if api is None:
            raise TypeError("api= is needed where the request is a callable")
        retry_state = self.retry_state(f"{api.NAME} to {target}", timeout)
        while True:
            view, node_id = self.metadata.view, None
            try:
                node_id = await self._locate(target, retry_state)
                response = await self.network.send(
                    node_id,
                    request,
                    api=api,
                    timeout=retry_state.time_for_request(),
                    caller_deadline=retry_state.deadline,
                    max_version=max_version,
                    raw=raw,
                )
                error = self._error_in(response, check, f"{api.NAME} to {target}", node_id)
                if error is None:
                    return response
            except KafkaError as failure:
                error = failure
            await retry_state.recover(error, self.name_of(node_id), view.version)

    def retry_state(self, what: str, timeout: float | None = None) -> RetryState:
        """A new ``RetryState``, ``api_timeout`` seconds long by default."""
        return RetryState(self, what, self.config.api_timeout if timeout is None else timeout)

    def name_of(self, node_id: int | None) -> str:
        """A broker as errors name it."""
        if node_id is None:
            return "no broker"
        broker = self.metadata.view.broker(node_id)
        if broker is not None:
            return str(broker)
        for node in self.network.bootstrap_nodes:
            if node.node_id == node_id:
                return f"bootstrap broker {node.address}"
        return f"broker {node_id}"

    def end(self, error: KafkaError) -> None:
        """Make no further attempt: all calls in back-off fail with ``error``."""
        self._ended = error
        self._end.notify()

    def check_ended(self) -> None:
        """Raise what ``end`` was given, if it was called."""
        if self._ended is not None:
            raise fresh(self._ended)

    async def pause(self, seconds: float) -> None:
        """Sleep, unless the client ends: then raise why."""
        self.check_ended()
        await self._end.wait(seconds)
        self.check_ended()

    async def _locate(self, target: Target, retry_state: RetryState) -> int:
        match target:
            case NodeTarget(node_id):
                if node_id >= 0 and node_id not in self.metadata.view.brokers:
                    raise BrokerUnreachable(f"the cluster has no broker {node_id} at the moment")
                return node_id
            case ControllerTarget():
                return self.controller()
            case LeaderTarget(topic, partition):
                await self.metadata.wait_for_topic(topic, retry_state.time_left())
                return self.leader_of(TopicPartition(topic, partition))
            case AnyNode():
                found = self.network.least_loaded()
                if found is None:
                    raise BrokerUnreachable("no known broker can be reached at the moment")
                return found

    def controller(self) -> int:
        """The controller's node id by the present view; BrokerUnreachable where there is none."""
        if self.metadata.view.controller_id is None:
            raise BrokerUnreachable("the cluster has no controller at the moment")
        return self.metadata.view.controller_id

    def leader_of(self, key: TopicPartition) -> int:
        """The leader's node id by the present view.

        Raises:
            UnknownTopicOrPartition: The topic isn't in the view, or has fewer partitions
                (``NoSuchPartition``).
            LeaderNotAvailable: It has no leader at the moment.
        """
        view = self.metadata.view
        leader = view.leader(*key)
        if leader is not None:
            return leader
        count = view.partition_count(key.topic)
        if count is None:
            raise UnknownTopicOrPartition(f"topic {key.topic} is not known", topic_partition=key)
        if not 0 <= key.partition < count:
            raise NoSuchPartition(
                f"{key}: topic {key.topic} has {count} partitions, counted from 0",
                topic_partition=key,
                hint="check the partition's number",
            )
        raise LeaderNotAvailable(f"{key} has no leader", topic_partition=key)

    @staticmethod
    def _error_in(
        response: Any, check: Check | None, doing: str, node_id: int
    ) -> KafkaError | None:
        found = check(response) if check is not None else None
        if isinstance(found, KafkaError):
            return found
        return broker_error(found, f"{doing} failed", node_id=node_id) if found else None


class RetryState:
    """One call's deadline, its failures so far, and the wait before the next attempt."""

    def __init__(self, calls: Calls, what: str, timeout: float) -> None:
        self._calls = calls
        self.attempts = Attempts(what, calls.clock.now())
        self.deadline = self.attempts.started + timeout
        self._waits = 0

    @property
    def elapsed(self) -> float:
        """Seconds since the call began."""
        return self._calls.clock.now() - self.attempts.started

    def time_left(self) -> float:
        """Seconds until the deadline; raises RequestTimedOut when it is here."""
        now = self._calls.clock.now()
        if now >= self.deadline:
            raise self.attempts.timeout_error(now)
        return self.deadline - now

    def time_for_request(self) -> float:
        """Seconds that the next request may take."""
        return min(self.time_left(), self._calls.config.request_timeout)

    async def recover(self, error: KafkaError, where: str, version: int) -> None:
        """Get ready for another attempt after ``error``, or raise.

        Args:
            error: Why the latest attempt failed.
            where: The broker that it concerns, in words.
            version: Of the view that the attempt was made with.

        Raises:
            KafkaError: ``error`` itself where trying again won't help; RequestTimedOut with it as
                the cause where there is no time to.
        """
        self._calls.check_ended()
        self.attempts.add(where, error)
        action = retry_action(error, self.elapsed)
        if action is RetryAction.RAISE:
            raise self.attempts.explain(error)
        await self.wait(action, version)

    async def wait(self, action: RetryAction, version: int) -> None:
        """Do what ``action`` (not RAISE) asks for, until the deadline at most."""
        calls = self._calls
        calls.counters.add("calls.retries")
        if action is not RetryAction.BACK_OFF and calls.metadata.view.version <= version:
            calls.metadata.request_update()
        if action is RetryAction.REFRESH:
            await self._newer_view(version)
        else:
            delay = calls.backoff.delay(self._waits, calls.rng)
            self._waits += 1
            left = self.deadline - calls.clock.now()
            await calls.pause(min(delay, left))
        self.time_left()

    async def _newer_view(self, version: int) -> None:
        left = self.deadline - self._calls.clock.now()
        try:
            await self._calls.metadata.wait_newer(version, max(0.0, left))
        except MetadataTimedOut as late:
            error = self.attempts.timeout_error(self._calls.clock.now())
            error.add_note(str(late))
            raise error from error.__cause__
