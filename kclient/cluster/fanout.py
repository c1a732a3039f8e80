"""One question about many things: split by broker, asked at once, repeated for what failed.

``offset_lookup`` and Admin use it. A ``FanoutRequest`` is the sans-IO part: which node to ask about
a key, the request for some keys, and what a response says of each. Here is the loop around it;
requests are futures of the network and cost no tasks, only waiting for several unknown topics does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kclient.cluster.retry import Attempts, RetryAction, retry_action
from kclient.errors import KafkaError, ProtocolError, RequestTimedOut
from kclient.types import TopicPartition

if TYPE_CHECKING:
    from kclient.cluster.calls import Calls, RetryState
    from kclient.cluster.view import Cluster
    from kclient.protocol.message import Request

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)


class FanoutRequest(Protocol[K, V_co]):
    """What is asked, of which node, and how a response is read. Sans-IO.

    Where keys are partitions, their topics are known before ``node_for`` is called.
    """

    @property
    def what(self) -> str:
        """For error texts: ``ListOffsets``, ``CreateTopics``."""
        ...

    @property
    def api(self) -> type[Request]:
        """The request class."""
        ...

    def node_for(self, key: K, calls: Calls) -> tuple[int, Hashable]:
        """The node to ask about ``key``, and a tag: keys of unequal tags go in requests apart.

        Raises:
            KafkaError: No node can be asked at the moment; counts as a failed attempt.
        """
        ...

    def build(self, keys: Sequence[K], version: int, view: Cluster, seconds: float) -> Request:
        """The request about ``keys``, which the broker should answer within ``seconds``."""
        ...

    def read(self, response: Any, keys: Sequence[K]) -> Mapping[K, V_co | KafkaError]:
        """What the response says of each key."""
        ...

    def is_final(self, error: KafkaError) -> bool:
        """True for errors that are the answer here, though they are retriable elsewhere."""
        ...


class ControllerRequest:
    """Base of a ``FanoutRequest`` that the controller handles."""

    def node_for(self, key: Any, calls: Calls) -> tuple[int, Hashable]:
        """The controller, all keys in one request."""
        return calls.controller(), None

    def is_final(self, error: KafkaError) -> bool:
        """No error but those that are final anyhow."""
        return False


async def fan_out(
    calls: Calls,
    question: FanoutRequest[K, V],
    keys: Iterable[K],
    timeout: float | None,
    found: Callable[[Mapping[K, V]], object] | None = None,
) -> dict[K, V | KafkaError]:
    """Get an answer or an error for every key.

    Args:
        calls: To send with.
        question: What to ask.
        keys: About what; the result has their order.
        timeout: Seconds for all; ``api_timeout`` by default.
        found: Called with results as they come, for callers that needn't wait for keys that are
            asked about again.

    Raises:
        ClientClosed, BackgroundTaskDied: The client ended meanwhile. All other errors are results.

    Cancellation: abandons the answers; requests that are under way may take effect.
    """
    ordered = list(dict.fromkeys(keys))
    fan = _Fanout(calls, question, calls.retry_state(question.what, timeout), found)
    pending = await fan.without_topic_errors(ordered)
    while pending:
        pending = await fan.round(pending)
    return {key: fan.results[key] for key in ordered}


class _Fanout:
    """The state of one ``fan_out``."""

    def __init__(
        self,
        calls: Calls,
        question: FanoutRequest[Any, Any],
        retry_state: RetryState,
        found: Callable[[Mapping[Any, Any]], object] | None,
    ) -> None:
        self.found = found
        self.calls = calls
        self.question = question
        self.retry_state = retry_state
        self.results: dict[Any, Any] = {}
        self.attempts: dict[Any, Attempts] = {}

    async def without_topic_errors(self, keys: list[Any]) -> list[Any]:
        """Wait for the topics; keys of those that can't be had get their error."""
        metadata, left = self.calls.metadata, self.retry_state.time_left()
        errors: dict[str, KafkaError] = {}

        async def wait(topic: str) -> None:
            try:
                await metadata.wait_for_topic(topic, left)
            except KafkaError as error:
                errors[topic] = error

        topic_of = {key: key.topic for key in keys if isinstance(key, TopicPartition)}
        topics = sorted(set(topic_of.values()))
        for topic in topics:
            metadata.touch(topic)
        unknown = [topic for topic in topics if metadata.view.partition_count(topic) is None]
        for outcome in await asyncio.gather(*map(wait, unknown), return_exceptions=True):
            if outcome is not None:
                raise outcome
        self.calls.check_ended()
        for key, topic in topic_of.items():
            if topic in errors:
                self.results[key] = errors[topic]
        return [key for key in keys if key not in self.results]

    async def round(self, keys: list[Any]) -> list[Any]:
        """Ask once about all ``keys``; return those to ask about again, after the due wait."""
        view = self.calls.metadata.view
        groups: dict[tuple[int, Hashable], list[Any]] = {}
        outcomes: list[tuple[Any, str, Any]] = []
        for key in keys:
            try:
                groups.setdefault(self.question.node_for(key, self.calls), []).append(key)
            except KafkaError as error:
                outcomes.append((key, "no broker", error))
        outcomes += await self._ask(groups, view)
        self.calls.check_ended()  # no answer of a key, but the end of the client
        actions, found = {}, {}
        for key, where, outcome in outcomes:
            if isinstance(outcome, KafkaError):
                action = self._action_for(key, where, outcome)
                if action is not RetryAction.RAISE:
                    actions[key] = action
            else:
                found[key] = outcome
        self.results.update(found)
        if found and self.found is not None:
            self.found(found)
        if actions:
            await self._wait(actions, view.version)
        return [key for key in keys if key not in self.results]

    async def _ask(
        self, groups: Mapping[tuple[int, Hashable], list[Any]], view: Cluster
    ) -> list[tuple[Any, str, Any]]:
        calls, question = self.calls, self.question
        try:
            seconds = self.retry_state.time_for_request()
        except RequestTimedOut as late:
            return [(key, "no broker", late) for keys in groups.values() for key in keys]
        futures = []
        for (node_id, _), keys in groups.items():

            def build(version: int, keys: Sequence[Any] = keys) -> Request:
                return question.build(keys, version, view, seconds)

            future = calls.network.send(
                node_id,
                build,
                api=question.api,
                timeout=seconds,
                caller_deadline=self.retry_state.deadline,
            )
            futures.append((node_id, keys, future))
        outcomes: list[tuple[Any, str, Any]] = []
        for node_id, keys, future in futures:
            where = calls.name_of(node_id)
            try:
                answers = question.read(await future, keys)
            except KafkaError as error:
                answers = dict.fromkeys(keys, error)
            missing = ProtocolError(f"{question.what}: the answer of {where} leaves out a part")
            outcomes += [(key, where, answers.get(key, missing)) for key in keys]
        return outcomes

    def _action_for(self, key: Any, where: str, error: KafkaError) -> RetryAction:
        attempts = self.attempts.get(key)
        if attempts is None:
            what = f"{self.question.what} of {key}"
            attempts = self.attempts[key] = Attempts(what, self.retry_state.attempts.started)
        attempts.add(where, error)
        action = retry_action(error, self.retry_state.elapsed)
        if action is RetryAction.RAISE or self.question.is_final(error):
            self.results[key] = attempts.explain(error)
            return RetryAction.RAISE
        return action

    async def _wait(self, actions: Mapping[Any, RetryAction], version: int) -> None:
        """Wait as the most urgent action says; out of time, every open key gets its error."""
        wanted = set(actions.values())
        action = next(
            v
            for v in (RetryAction.REFRESH, RetryAction.REFRESH_AND_BACK_OFF, RetryAction.BACK_OFF)
            if v in wanted
        )
        self.calls.check_ended()
        try:
            await self.retry_state.wait(action, version)
        except RequestTimedOut:
            now = self.calls.clock.now()
            for key in actions:
                self.results[key] = self.attempts[key].timeout_error(now)
