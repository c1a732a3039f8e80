"""GroupOffsets: the committed offsets of a group, kept by its coordinator.

``consumer.commits`` makes attempts to commit through it, and decides what is retried; a consumer in
a group reads here where to continue. It finds the coordinator through ``Coordinator``; requests and
responses are ``cluster.offset_requests``. It has no task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kclient.cluster.offset_requests import OffsetCommit, OffsetFetch
from kclient.cluster.retry import Attempts, RetryAction, retry_action
from kclient.error_codes import ErrorCode
from kclient.errors import BrokerError, KafkaError, RequestTimedOut, broker_error
from kclient.group.commit_errors import was_recreated
from kclient.network import Lane
from kclient.protocol.messages.offset_commit import OffsetCommitRequest
from kclient.protocol.messages.offset_fetch import OffsetFetchRequest
from kclient.types import GroupMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from kclient.cluster.calls import RetryState
    from kclient.cluster.coordinator import Coordinator
    from kclient.cluster.core import ClientCore
    from kclient.group.member import Generation
    from kclient.protocol.message import Request
    from kclient.types import OffsetAndMetadata, TopicPartition

_BY_URGENCY = (RetryAction.REFRESH, RetryAction.REFRESH_AND_BACK_OFF, RetryAction.BACK_OFF)


class GroupOffsets:
    """The committed offsets of one group.

    Args:
        core: The client's core.
        coordinator: Of the group.

    Attributes:
        group_id: The group.
        by_name: Partitions whose topics the latest attempt to commit named, in place of ids.
    """

    def __init__(self, core: ClientCore, coordinator: Coordinator) -> None:
        self._core = core
        self._coordinator = coordinator
        self.group_id = coordinator.key
        self.by_name: set[TopicPartition] = set()

    async def attempt(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        generation: Generation,
        limit: float,
        topic_ids: Mapping[TopicPartition, bytes | None] | None = None,
        wanted: Callable[[TopicPartition], bool] = lambda partition: True,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Commit ``offsets``, once the coordinator is known, each partition in one request.

        That is one request in all, unless the ids of some topics are unknown, or a topic was
        recreated while offsets of both are pending.

        Args:
            offsets: What to commit.
            generation: The generation to commit under.
            limit: On the client's clock, until when there must be an outcome.
            topic_ids: Of the topics that the offsets were read from, where they were: they are
                committed to no other topic of that name, as far as the brokers support ids.
            wanted: Whether the offset of a partition is still to be committed: called when the
                request is written, as that may be long after, and others may own it by then.

        Returns:
            The outcome of each partition, None where its offset is committed. Errors of the
            request as a whole are those of each partition.

        Cancellation: abandons the response only. A request in flight may take effect.
        """
        ids, view = topic_ids or {}, self._core.metadata.view
        outcomes: dict[TopicPartition, KafkaError | None] = {}
        parts: dict[object, dict[TopicPartition, OffsetAndMetadata]] = {}
        first: dict[str, bytes | None] = {}
        for key, offset in offsets.items():
            if was_recreated(key, ids.get(key), view):
                doing = f"commit of offset {offset.offset} of {key}, of a topic that was recreated,"
                outcomes[key] = broker_error(
                    ErrorCode.UNKNOWN_TOPIC_ID,
                    f"{doing} by group {self.group_id}",
                    topic_partition=key,
                )
            else:
                one = ids.get(key) or view.topic_id(key.topic)
                same = first.setdefault(key.topic, one) == one
                parts.setdefault(bool(one) if same else one, {})[key] = offset
        self.by_name = set()
        for part in parts.values():
            outcomes.update(await self._commit(part, generation, limit, ids, wanted))
        return outcomes

    async def _commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        generation: Generation,
        limit: float,
        topic_ids: Mapping[TopicPartition, bytes | None],
        wanted: Callable[[TopicPartition], bool],
    ) -> dict[TopicPartition, KafkaError | None]:
        """Send one request."""
        view = self._core.metadata.view
        member = GroupMetadata(
            self.group_id, generation.generation_id, generation.member_id, generation.instance_id
        )
        order = OffsetCommit(member, offsets, view, topic_ids, wanted)
        try:
            return await self._ask(order, OffsetCommitRequest, offsets, limit)
        finally:
            if order.by_name:
                self.by_name.update(offsets)

    async def fetch(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | KafkaError | None]:
        """Read the committed offsets of ``partitions``, retrying what failed for a passing reason.

        Waits for transactions that are about to change these offsets (KIP-447); brokers before 2.5
        don't.

        Args:
            partitions: The partitions to look up.
            timeout: Seconds for all attempts together; ``api_timeout`` by default.

        Returns:
            For each partition the offset, None where nothing is committed, or why it isn't known:
            ``RequestTimedOut``, ``GroupAuthorizationFailed``, ``TopicAuthorizationFailed``,
            ``UnknownTopicOrPartition``, ``ProtocolError`` (the response leaves it out).

        Raises:
            ClientClosed, BackgroundTaskDied: The client ended meanwhile.

        Cancellation: safe, nothing is changed anywhere.

        Example::

            found = await offsets.fetch([TopicPartition("flights", 0)])
        """
        ordered = list(dict.fromkeys(partitions))
        retry_state = self._core.calls.retry_state(f"OffsetFetch of group {self.group_id}", timeout)
        outcomes: dict[TopicPartition, OffsetAndMetadata | KafkaError | None] = {}
        failures: dict[TopicPartition, Attempts] = {}
        left = ordered
        while left:
            view = self._core.metadata.view
            request = OffsetFetch(self.group_id, left, view)
            results = await self._ask(request, OffsetFetchRequest, left, retry_state.deadline)
            self._core.calls.check_ended()
            outcomes.update(results)
            actions = self._actions_for(results, failures, retry_state)
            left = list(actions)
            if not left:
                break
            try:
                await retry_state.wait(min(actions.values(), key=_BY_URGENCY.index), view.version)
            except RequestTimedOut:
                now = self._core.clock.now()
                outcomes.update((key, failures[key].timeout_error(now)) for key in left)
                break
        return {key: outcomes[key] for key in ordered}

    def _actions_for(
        self,
        answers: Mapping[TopicPartition, OffsetAndMetadata | KafkaError | None],
        failures: dict[TopicPartition, Attempts],
        retry_state: RetryState,
    ) -> dict[TopicPartition, RetryAction]:
        """The partitions to retry, with the action before that."""
        where = self._core.calls.name_of(self._coordinator.node_id)
        actions: dict[TopicPartition, RetryAction] = {}
        for key, error in answers.items():
            if not isinstance(error, KafkaError):
                continue
            if key not in failures:
                what = f"OffsetFetch of {key} in group {self.group_id}"
                failures[key] = Attempts(what, retry_state.attempts.started)
            failures[key].add(where, error)
            action = retry_action(error, retry_state.elapsed)
            if action is not RetryAction.RAISE:
                actions[key] = action
        return actions

    async def _ask(
        self,
        message: OffsetCommit | OffsetFetch,
        api: type[Request],
        partitions: Iterable[TopicPartition],
        limit: float,
    ) -> dict[TopicPartition, Any]:
        """Send one request to the coordinator, on a lane where no join waits."""
        node_id: int | None = None
        try:
            node_id = await self._coordinator.find(limit)
            response = await self._coordinator.send(
                node_id,
                message.build,
                api=api,
                lane=Lane.GENERAL,
                caller_deadline=limit,
                max_version=message.max_version,
            )
        except KafkaError as error:
            if node_id is not None and self._core.clock.now() < limit:  # else the limit was reached
                self._coordinator.judge(node_id, error)
            return dict.fromkeys(partitions, error)
        outcomes = message.read(response)
        self._heed(node_id, outcomes.items())
        return outcomes

    def _heed(self, node_id: int, answers: Iterable[tuple[TopicPartition, object]]) -> None:
        """Refresh metadata and coordinator where the errors require it for the next attempt."""
        topics: dict[str, None] = {}
        moved: BrokerError | None = None
        for partition, error in answers:
            if isinstance(error, BrokerError):
                if error.refresh_metadata:
                    topics[partition.topic] = None
                if error.rediscover_coordinator:
                    moved = error
        for topic in topics:
            self._core.metadata.touch(topic)
            self._core.metadata.request_update(topic)
        if moved is not None:
            self._coordinator.lost(node_id, moved)
