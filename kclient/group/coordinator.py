"""Coordinator: which broker leads a group, and requests to it, repeated until they succeed.

One per client that uses a group. ``Membership`` sends what must not be repeated through ``send``,
and ``GroupOffsets`` what may be through ``call``. It asks any broker that has little to do who the
coordinator is, keeps the answer until somebody finds that broker gone, and has no task. What an
error means for a membership is not its business.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

from kclient.cluster.broker import Broker
from kclient.errors import (
    BrokerError,
    BrokerUnreachable,
    ConnectionLost,
    KafkaError,
    RequestTimedOut,
    broker_error,
)
from kclient.network import Lane, RequestFuture
from kclient.protocol.message import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from kclient.cluster.calls import Check, Effort
    from kclient.cluster.core import ClientCore
    from kclient.network import RequestBuilder
    from kclient.protocol.messages.find_coordinator import (
        FindCoordinatorRequest,
        FindCoordinatorResponse,
    )

PATIENCE = 3.0
"""Seconds for which a broker may think about who coordinates, before another one is asked too.

Doubled with each one in a row that says nothing."""

_GROUP = 0
_GONE = (ConnectionLost, BrokerUnreachable, RequestTimedOut)


class Coordinator:
    """The coordinator of one group.

    Args:
        core: The client's inside.
        group_id: The group.

    Attributes:
        group_id: The same.
        finds: How often the coordinator was found anew.
    """

    def __init__(self, core: ClientCore, group_id: str) -> None:
        self._core = core
        self.group_id = group_id
        self.finds = 0
        self._node_id: int | None = None
        self._asking: RequestFuture[FindCoordinatorResponse] | None = None
        self._asked: int | None = None
        self._silent: int | None = None
        self._silences = 0
        self._held: dict[RequestFuture[Any], int] = {}

    @property
    def node_id(self) -> int | None:
        """The broker's id; None while it isn't known."""
        return self._node_id

    @property
    def name(self) -> str | None:
        """The broker as texts name it; None while it isn't known."""
        return None if self._node_id is None else self._core.calls.name_of(self._node_id)

    # Finding it

    async def find(self, deadline: float) -> int:
        """Return the node id of the coordinator, looking for it as long as need be.

        Without suspending where it is known.

        Args:
            deadline: On the client's clock.

        Raises:
            RequestTimedOut: It wasn't found in time; the text has why.
            GroupAuthorizationFailed, InvalidGroupId, ...: No broker will ever tell.
            ClientClosed, BackgroundTaskDied: The client ended meanwhile.

        Cancellation: leaves nothing behind.
        """
        if self._node_id is not None:
            return self._node_id
        left = deadline - self._core.clock.now()
        effort = self._core.calls.effort(f"FindCoordinator for group {self.group_id}", left)
        while True:
            version = self._core.metadata.view.version
            try:
                return await self._locate(effort)
            except KafkaError as error:
                await effort.recover(error, self._core.calls.name_of(self._asked), version)

    async def _locate(self, effort: Effort) -> int:
        """One attempt."""
        if self._node_id is not None:
            return self._node_id
        asking = self._asking if self._asking is not None else self._ask()
        try:
            async with asyncio.timeout_at(effort.deadline):
                response = await asking
        except KafkaError:
            self._unanswered(asking)
            raise
        except TimeoutError:
            raise RequestTimedOut("no broker has answered yet") from None
        return self._answered(asking, response)

    def _ask(self) -> RequestFuture[FindCoordinatorResponse]:
        """Have a broker asked, unless one is: whoever needs the answer shares it."""
        from kclient.protocol.messages.find_coordinator import FindCoordinatorRequest

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
            limit=self._core.clock.now() + patience,
        )
        return self._asking

    def _question(self, version: int) -> FindCoordinatorRequest:
        from kclient.protocol.messages.find_coordinator import FindCoordinatorRequest

        if version >= 4:
            return FindCoordinatorRequest(key_type=_GROUP, coordinator_keys=[self.group_id])
        return FindCoordinatorRequest(key=self.group_id, key_type=_GROUP)

    def _unanswered(self, asking: RequestFuture[FindCoordinatorResponse]) -> None:
        if self._asking is asking:
            self._asking, self._silent = None, self._asked
            self._silences += 1

    def _answered(
        self, asking: RequestFuture[FindCoordinatorResponse], response: FindCoordinatorResponse
    ) -> int:
        found = response.coordinators[0] if response.coordinators else response
        if self._asking is asking:
            self._asking, self._silences = None, 0
        if found.error_code:
            raise broker_error(
                found.error_code,
                f"FindCoordinator for group {self.group_id} failed",
                broker_message=found.error_message or None,
                node_id=self._asked,
            )
        if self._node_id is None:
            known = self._core.metadata.view.broker(found.node_id)
            rack = known.rack if known is not None else None
            self._core.metadata.apply_address(Broker(found.node_id, found.host, found.port, rack))
            self._node_id = found.node_id
            self.finds += 1
            self._core.counters.add("group.coordinator_finds")
        return found.node_id

    async def confirm(self, node_id: int, limit: float) -> None:
        """Ask the coordinator itself whether it is the coordinator, and believe what it says.

        For those who wait for an answer that may take long, such as that of a JoinGroup.

        Args:
            node_id: Whom to ask.
            limit: On the client's clock, until when an answer must be there.

        Raises:
            KafkaError: It isn't, or gave no answer; ``lost`` was called.
        """
        from kclient.protocol.messages.find_coordinator import FindCoordinatorRequest

        try:
            response = await self._core.network.send(
                node_id, self._question, api=FindCoordinatorRequest, limit=limit
            )
            found = response.coordinators[0] if response.coordinators else response
            if found.error_code:
                raise broker_error(found.error_code, "FindCoordinator failed", node_id=node_id)
            if found.node_id != node_id:
                raise ConnectionLost(
                    f"group {self.group_id} has moved to broker {found.node_id}", node_id=node_id
                )
        except KafkaError as error:
            self.lost(node_id, error)
            raise

    # Losing it

    def lost(self, node_id: int, error: KafkaError) -> None:
        """``node_id`` turned out not to be the coordinator, or not to answer.

        Where it is silent, whoever waits for an answer from it gets ``ConnectionLost`` at once:
        the group may have gone to another broker by now.
        """
        silent = not isinstance(error, BrokerError)
        if self._node_id == node_id:
            self._node_id = None
            if silent:
                self._silent = node_id
        if not silent:
            return
        for request in [held for held, at in self._held.items() if at == node_id]:
            del self._held[request]
            gone = ConnectionLost(
                f"{self._core.calls.name_of(node_id)} was given up as coordinator of group "
                f"{self.group_id} while it owed an answer: {error}",
                node_id=node_id,
            )
            gone.__cause__ = error
            request.fail(gone)

    def abandon(self, request: RequestFuture[Any], error: KafkaError) -> None:
        """Fail what ``send`` gave, if it has no outcome yet: nobody will answer it any more."""
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
        limit: float = math.inf,
        max_version: int | None = None,
    ) -> RequestFuture[Any]:
        """Send one request to ``node_id``, once; it fails early where the node is given up.

        Args:
            node_id: The coordinator, as ``find`` gave it.
            request: A message, or a callable that makes it for the negotiated version.
            api: The request's class.
            lane: GROUP for what parks at the broker, else GENERAL.
            timeout: Seconds, after which its connection is closed; ``request_timeout`` by default.
            limit: On the client's clock, until when there must be an outcome.
            max_version: Highest version that the caller can make use of; None for no limit.
        """
        sent = self._core.network.send(
            node_id,
            request,
            api=api,
            lane=lane,
            timeout=timeout,
            limit=limit,
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
        api: type[Request] | None = None,
        timeout: float | None = None,
        check: Check | None = None,
        lane: Lane = Lane.GENERAL,
        on_attempt: Callable[[int], object] | None = None,
    ) -> Any:
        """Send ``request`` to the coordinator, wherever it is, until it succeeds.

        A coordinator that is gone is looked for again, one that loads its groups is waited for.

        Args:
            request: A message, or a callable that makes it for the negotiated version.
            api: The request class; needed where ``request`` is a callable.
            timeout: Seconds for all attempts together; ``api_timeout`` by default.
            check: Finds the error in a response; without it every response is a success.
            lane: The kind of connection. Commits must not be on GROUP, where a join may park.
            on_attempt: Called with the node id before each attempt.

        Raises:
            BrokerError: What ``check`` found, if trying again won't help.
            RequestTimedOut: The deadline came first; ``__cause__`` is the last of the failures.
            NoCommonVersion: The broker is too old or too new for this API.
            ClientClosed, BackgroundTaskDied: The client ended meanwhile.

        Cancellation: abandons the answer only. A request that is under way may take effect.

        Example::

            response = await coordinator.call(OffsetFetchRequest(...), check=error_of)
        """
        api = type(request) if isinstance(request, Request) else api
        if api is None:
            raise TypeError("api= is needed where the request is a callable")
        calls, doing = self._core.calls, f"{api.NAME} to the coordinator of group {self.group_id}"
        effort = calls.effort(doing, timeout)
        while True:
            version, node_id = self._core.metadata.view.version, None
            try:
                node_id = await self._locate(effort)
                if on_attempt is not None:
                    on_attempt(node_id)
                response = await self.send(
                    node_id,
                    request,
                    api=api,
                    lane=lane,
                    timeout=effort.time_for_request(),
                    limit=effort.deadline,
                )
                error = error_in(response, check, f"{doing} failed", node_id)
                if error is None:
                    return response
            except KafkaError as failure:
                error = failure
            if node_id is not None and self._core.clock.now() < effort.deadline:
                self.judge(node_id, error)
            await effort.recover(error, calls.name_of(node_id), version)

    def judge(self, node_id: int, error: KafkaError) -> bool:
        """Call ``lost`` if that is what ``error`` of a request to ``node_id`` means."""
        elsewhere = isinstance(error, BrokerError) and error.rediscover_coordinator
        if elsewhere or isinstance(error, _GONE):
            self.lost(node_id, error)
            return True
        return False


def error_in(response: Any, check: Check | None, doing: str, node_id: int) -> KafkaError | None:
    """What ``check`` finds in ``response``, as an error."""
    found = check(response) if check is not None else None
    if isinstance(found, KafkaError):
        return found
    return broker_error(found, doing, node_id=node_id) if found else None
