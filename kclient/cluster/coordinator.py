"""Coordinator: which broker leads a group or a transactional id, and requests to it.

One per client and group, or transactional id. Its users send through it; they decide whether to
repeat a request, and what an error means for them. It looks the coordinator up at any broker with
little load, keeps the result until that broker turns out to be the wrong one or unreachable, and
has no task.
"""

from __future__ import annotations

import asyncio
import enum
import math
from typing import TYPE_CHECKING, Any

from kclient.cluster.retry import RetryAction
from kclient.cluster.view import Broker
from kclient.error_codes import ErrorCode
from kclient.errors import (
    BrokerError,
    BrokerUnreachable,
    ConnectionLost,
    KafkaError,
    RequestTimedOut,
    broker_error,
)
from kclient.network import Lane, RequestFuture
from kclient.protocol.messages.find_coordinator import FindCoordinatorRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from kclient.cluster.calls import RetryState
    from kclient.cluster.core import ClientCore
    from kclient.network import RequestBuilder
    from kclient.protocol.message import Request
    from kclient.protocol.messages.find_coordinator import FindCoordinatorResponse
    from kclient.types import TopicPartition

PATIENCE = 3.0
"""Seconds that a broker may take to find the coordinator, before another one is asked too.

Doubled with each one in a row that doesn't respond."""

_FIRST_WITH_SEVERAL_KEYS = 4
_BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
_GONE = (ConnectionLost, BrokerUnreachable, RequestTimedOut)


def coordinator_error(
    code: int,
    doing: str,
    *,
    node_id: int,
    topic_partition: TopicPartition | None = None,
) -> BrokerError:
    """Return the error of ``code`` from a coordinator.

    Old ones have INVALID_PRODUCER_EPOCH for what is PRODUCER_FENCED today.
    """
    if code == ErrorCode.INVALID_PRODUCER_EPOCH:
        code = ErrorCode.PRODUCER_FENCED
    return broker_error(code, doing, topic_partition=topic_partition, node_id=node_id)


class CoordinatorKey(enum.Enum):
    """What a coordinator coordinates: the value is FindCoordinator's ``key_type``."""

    GROUP = 0
    TRANSACTION = 1

    def __str__(self) -> str:
        return "group" if self is CoordinatorKey.GROUP else "transactional id"


_FINDS = {
    CoordinatorKey.GROUP: "group.coordinator_finds",
    CoordinatorKey.TRANSACTION: "producer.coordinator_finds",
}


class Coordinator:
    """The coordinator of one group or transactional id.

    Args:
        core: The client's core.
        key: The group's name, or the transactional id.
        kind: Which of the two.

    Attributes:
        key: As given.
        node_id: The broker's id; None while it isn't known.
    """

    def __init__(
        self, core: ClientCore, key: str, kind: CoordinatorKey = CoordinatorKey.GROUP
    ) -> None:
        self._core = core
        self.key = key
        self._kind = kind
        self._what = f"{kind} {key}"
        self.node_id: int | None = None
        self._asking: RequestFuture[FindCoordinatorResponse] | None = None
        self._asked: int | None = None
        self._silent: int | None = None
        self._silences = 0
        self._held: dict[RequestFuture[Any], int] = {}

    @property
    def name(self) -> str | None:
        """The broker as error texts name it; None while it isn't known."""
        return None if self.node_id is None else self._core.calls.name_of(self.node_id)

    # Finding it

    async def find(self, deadline: float) -> int:
        """Return the node id of the coordinator, looking it up as long as needed.

        Without suspending where it is known.

        Args:
            deadline: On the client's clock.

        Raises:
            RequestTimedOut: It wasn't found in time; the text has why.
            GroupAuthorizationFailed, TransactionalIdAuthorizationFailed, ...: No broker will ever
                report it.
            ClientClosed, BackgroundTaskDied: The client ended meanwhile.

        Cancellation: leaves nothing behind.
        """
        if self.node_id is not None:
            return self.node_id
        left = deadline - self._core.clock.now()
        retry_state = self._core.calls.retry_state(f"FindCoordinator for {self._what}", left)
        while True:
            version = self._core.metadata.view.version
            try:
                return await self._locate(retry_state.deadline)
            except KafkaError as error:
                await retry_state.recover(error, self._core.calls.name_of(self._asked), version)

    async def _locate(self, deadline: float) -> int:
        """Make one attempt to look it up."""
        if self.node_id is not None:
            return self.node_id
        asking = self._asking if self._asking is not None else self._ask()
        try:
            async with asyncio.timeout_at(deadline):
                response = await asking
        except KafkaError:
            if self._asking is asking:
                self._asking, self._silent = None, self._asked
                self._silences += 1
            raise
        except TimeoutError:
            raise RequestTimedOut("no broker has answered yet") from None
        if self._asking is asking:
            self._asking, self._silences = None, 0
        found = self._named_in(response, self._asked)
        if self.node_id is None:
            self._core.metadata.apply_address(found)
            self.node_id = found.node_id
            self._core.counters.add(_FINDS[self._kind])
        return found.node_id

    def _named_in(self, response: FindCoordinatorResponse, asked: int | None) -> Broker:
        """The broker that ``response`` names; raises the error of the response, if it has one."""
        found = response.coordinators[0] if response.coordinators else response
        if found.error_code:
            raise broker_error(
                found.error_code,
                f"FindCoordinator for {self._what} failed",
                broker_message=found.error_message or None,
                node_id=asked,
            )
        known = self._core.metadata.view.broker(found.node_id)
        return Broker(found.node_id, found.host, found.port, known.rack if known else None)

    def _ask(self) -> RequestFuture[FindCoordinatorResponse]:
        """Send a lookup, unless one is in flight: all waiters share its response."""
        network = self._core.network
        others = [n for n in self._core.metadata.view.brokers if n != self._silent]
        self._asked = network.least_loaded(others) if others else None
        if self._asked is None:
            self._asked = network.least_loaded()
        if self._asked is None:
            raise BrokerUnreachable("no known broker can be reached at the moment")
        patience = min(PATIENCE * 2 ** min(self._silences, 8), self._core.config.request_timeout)
        self._asking = network.send(
            self._asked,
            self._question,
            api=FindCoordinatorRequest,
            caller_deadline=self._core.clock.now() + patience,
        )
        return self._asking

    def _question(self, version: int) -> FindCoordinatorRequest:
        key_type = self._kind.value
        if version >= _FIRST_WITH_SEVERAL_KEYS:
            return FindCoordinatorRequest(key_type=key_type, coordinator_keys=[self.key])
        return FindCoordinatorRequest(key=self.key, key_type=key_type)

    async def confirm(self, node_id: int, limit: float) -> None:
        """Have the coordinator itself confirm its role, and believe its response.

        For callers that wait for a response that may take long, such as that of a JoinGroup.

        Args:
            node_id: The broker to ask.
            limit: On the client's clock, until when it must have responded.

        Raises:
            KafkaError: It isn't the coordinator, or didn't respond; ``lost`` was called.
        """
        try:
            response = await self._core.network.send(
                node_id, self._question, api=FindCoordinatorRequest, caller_deadline=limit
            )
            leader = self._named_in(response, node_id).node_id
            if leader != node_id:
                why = f"{self._what} has moved to broker {leader}"
                raise ConnectionLost(why, node_id=node_id)
        except KafkaError as error:
            self.lost(node_id, error)
            raise

    # Losing it

    def lost(self, node_id: int, error: KafkaError) -> None:
        """Forget ``node_id``, which turned out not to be the coordinator, or not to respond.

        Where it doesn't respond, requests that wait for it fail with ``ConnectionLost`` at once:
        the group may have moved to another broker by now.
        """
        silent = not isinstance(error, BrokerError)
        if self.node_id == node_id:
            self.node_id = None
            if silent:
                self._silent = node_id
        if not silent:
            return
        for request in [held for held, at in self._held.items() if at == node_id]:
            del self._held[request]
            failure = ConnectionLost(
                f"{self._core.calls.name_of(node_id)} was given up as coordinator of "
                f"{self._what} while a response was pending: {error}",
                node_id=node_id,
            )
            failure.__cause__ = error
            request.fail(failure)

    def abandon(self, request: RequestFuture[Any], error: KafkaError) -> None:
        """Fail a request made by ``send``, if it has no outcome yet: no response will come."""
        if self._held.pop(request, None) is not None:
            request.fail(error)

    # Requests

    def send(
        self,
        node_id: int,
        request: RequestBuilder,
        *,
        api: type[Request],
        lane: Lane = Lane.GENERAL,
        timeout: float | None = None,
        caller_deadline: float = math.inf,
        max_version: int | None = None,
    ) -> RequestFuture[Any]:
        """Send one request to ``node_id``, once; it fails early when the node is dropped.

        Args:
            node_id: The coordinator, as ``find`` returned it.
            request: A message, or a callable that makes it for the negotiated version.
            api: The request's class.
            lane: GROUP for requests that wait at the broker, else GENERAL.
            timeout: Seconds, after which its connection is closed; ``request_timeout`` by default.
            caller_deadline: On the client's clock, until when there must be an outcome.
            max_version: Highest version that the caller can use; None for no limit.
        """
        sent = self._core.network.send(
            node_id,
            request,
            api=api,
            lane=lane,
            timeout=timeout,
            caller_deadline=caller_deadline,
            max_version=max_version,
        )
        outcome: RequestFuture[Any] = RequestFuture()
        self._held[outcome] = node_id

        def settle(answered: RequestFuture[Any]) -> None:
            if self._held.pop(outcome, None) is None:
                return
            if answered.error is not None:
                outcome.fail(answered.error)
            else:
                outcome.complete(answered.result())

        sent.add_listener(settle)
        return outcome

    async def call(
        self,
        request: RequestBuilder,
        *,
        api: type[Request],
        check: Callable[[Any, int], KafkaError | None],
        may_repeat: Callable[[str, KafkaError], bool],
        retry_state: RetryState,
        max_version: int | None = None,
        soon: float | None = None,
    ) -> Any:
        """Send ``request`` to the coordinator, whichever broker that is, until it succeeds.

        Args:
            request: A message, or a callable that makes it for the negotiated version.
            api: The request's class.
            check: Returns the error of a response from the given node.
            may_repeat: Decides after an error, by the name of the API that it is of: this one, or
                FindCoordinator.
            retry_state: The deadline, and the failures so far.
            max_version: Highest version that the caller can use; None for no limit.
            soon: Seconds before it is repeated after CONCURRENT_TRANSACTIONS.

        Raises:
            RequestTimedOut: The deadline came first.
            KafkaError: What ``may_repeat`` said no to.

        Cancellation: abandons the response only. A request in flight may take effect.
        """
        calls = self._core.calls
        while True:
            version, node_id = calls.metadata.view.version, None
            try:
                node_id = await self.find(retry_state.deadline)
                response = await self.send(
                    node_id,
                    request,
                    api=api,
                    caller_deadline=retry_state.deadline,
                    max_version=max_version,
                )
                error = check(response, node_id)
                if error is None:
                    return response
            except KafkaError as failure:
                error = failure
            calls.check_ended()
            retry_state.attempts.add(calls.name_of(node_id), error)
            if not may_repeat("FindCoordinator" if node_id is None else api.NAME, error):
                raise retry_state.attempts.explain(error)
            if node_id is not None:
                self.judge(node_id, error)
            busy = isinstance(error, BrokerError) and error.code == _BUSY
            if soon is None or not busy:
                await retry_state.wait(RetryAction.BACK_OFF, version)
            else:
                await calls.pause(min(soon, retry_state.time_left()))
                retry_state.time_left()

    def judge(self, node_id: int, error: KafkaError) -> None:
        """Call ``lost`` if that is what ``error`` of a request to ``node_id`` means."""
        elsewhere = isinstance(error, BrokerError) and error.rediscover_coordinator
        if elsewhere or isinstance(error, _GONE):
            self.lost(node_id, error)
