"""The operations of ``Admin``: topics, lookups of offsets and the cluster, ends of transactions.

The requests are in ``topics``; ``descriptions`` reads topics and the cluster. A controller responds
before all brokers know of a change, and another broker could then report that a new topic doesn't
exist: so a change waits until every broker shows it. It waits for a moment only: the change itself
is done, and running out of time is no error.

Before Apache Kafka 2.4 a new topic must come with numbers of partitions and replicas; where the
caller leaves them open, the controller's own settings apply.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kclient.admin import descriptions
from kclient.admin.descriptions import (
    ClusterDescription,
    TopicDescription,
    TopicListing,
    request_for,
)
from kclient.admin.topics import (
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    DefaultsNeeded,
    DeletedTopic,
    DeleteTopics,
    NewTopic,
    TopicRef,
)
from kclient.cluster import offset_lookup
from kclient.cluster.calls import AnyNode, NodeTarget
from kclient.cluster.coordinator import Coordinator, CoordinatorKey, coordinator_error
from kclient.cluster.fanout import fan_out
from kclient.cluster.wakeups import run_sliced
from kclient.errors import KafkaError, NoCommonVersion, ProtocolError, broker_error
from kclient.protocol.messages.describe_cluster import DescribeClusterRequest
from kclient.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from kclient.protocol.messages.end_txn import EndTxnRequest
from kclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kclient.types import IsolationLevel, OffsetAndTimestamp, OffsetSpec, TopicPartition

if TYPE_CHECKING:
    from kclient.cluster.core import ClientCore
    from kclient.network import RawResponse
    from kclient.protocol.messages.end_txn import EndTxnResponse
    from kclient.types import PreparedTransaction

logger = logging.getLogger("kclient.admin")

PATIENCE = 5.0
"""Seconds to wait at most: propagation takes milliseconds, unless a broker is in trouble."""

BROKERS_ASKED = 12
"""In larger clusters only so many brokers are asked; ``wait_for_topic`` bridges the rest."""

GONE = 0
"""The number of partitions of a topic that doesn't exist any more."""

BROKER = 4
"""Kafka's number of the resource type."""

_LAST_WITHOUT_BUMP = 4
"""EndTxn: from v5 on the coordinator raises the epoch, as protocol V2 has it."""

NAMES = ("num.partitions", "default.replication.factor")


async def create_topics(
    core: ClientCore, topics: Mapping[str, NewTopic], validate_only: bool, timeout: float
) -> dict[str, CreatedTopic | KafkaError]:
    """See ``Admin.create_topics``."""
    deadline = core.clock.now() + timeout
    request = CreateTopics(topics, validate_only=validate_only)
    outcomes = await fan_out(core.calls, request, topics, timeout)
    lacking = [name for name, got in outcomes.items() if isinstance(got, DefaultsNeeded)]
    if lacking:
        left = max(0.001, deadline - core.clock.now())
        outcomes |= await _with_defaults(core, topics, lacking, validate_only, left)
    made = {
        name: got.partitions or 1 for name, got in outcomes.items() if isinstance(got, CreatedTopic)
    }
    if made and not validate_only:
        await wait_until_seen(core, made, deadline - core.clock.now())
    return outcomes


async def _with_defaults(
    core: ClientCore,
    topics: Mapping[str, NewTopic],
    lacking: Sequence[str],
    validate_only: bool,
    timeout: float,
) -> dict[str, CreatedTopic | KafkaError]:
    """Request those topics again whose numbers an old controller could not fill in."""
    deadline = core.clock.now() + timeout
    try:
        partitions, replicas = await broker_defaults(core, timeout)
    except KafkaError as error:
        return dict.fromkeys(lacking, error)
    filled = {name: topics[name].with_defaults(partitions, replicas) for name in lacking}
    request = CreateTopics(filled, validate_only=validate_only)
    return await fan_out(core.calls, request, filled, max(0.001, deadline - core.clock.now()))


async def delete_topics(
    core: ClientCore, refs: Sequence[TopicRef], timeout: float
) -> dict[TopicRef, DeletedTopic | KafkaError]:
    """See ``Admin.delete_topics``."""
    deadline = core.clock.now() + timeout
    outcomes = await fan_out(core.calls, DeleteTopics(), refs, timeout)
    deleted = {
        got.name: GONE
        for got in outcomes.values()
        if isinstance(got, DeletedTopic) and got.name is not None
    }
    if deleted:
        await wait_until_seen(core, deleted, deadline - core.clock.now())
    return outcomes


async def create_partitions(
    core: ClientCore,
    totals: Mapping[str, int],
    assignments: Mapping[str, Sequence[Sequence[int]]],
    validate_only: bool,
    timeout: float,
) -> dict[str, int | KafkaError]:
    """See ``Admin.create_partitions``."""
    deadline = core.clock.now() + timeout
    request = CreatePartitions(totals, assignments, validate_only=validate_only)
    outcomes = await fan_out(core.calls, request, totals, timeout)
    grown = {name: got for name, got in outcomes.items() if isinstance(got, int)}
    if grown and not validate_only:
        await wait_until_seen(core, grown, deadline - core.clock.now())
    return outcomes


async def broker_defaults(core: ClientCore, timeout: float) -> tuple[int, int]:
    """``num.partitions`` and ``default.replication.factor`` of the controller.

    Raises:
        KafkaError: They can't be looked up; ClusterAuthorizationFailed where this client may not
            see them.
    """
    # A broker's settings are known to that broker only.
    node_id = core.calls.controller()
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=BROKER, resource_name=str(node_id), configuration_keys=list(NAMES)
            )
        ]
    )
    response = await core.calls.call(
        NodeTarget(node_id), request, timeout=timeout, check=_config_error
    )
    values = {config.name: config.value for config in response.results[0].configs}
    try:
        partitions, replicas = (int(values[name] or "") for name in NAMES)
    except (KeyError, ValueError):
        raise ProtocolError(
            f"broker {node_id} reports no usable {' and '.join(NAMES)}",
            struct="DescribeConfigsResponse",
            field="configs",
            hint="give partitions and replication_factor",
        ) from None
    return partitions, replicas


def _config_error(response: DescribeConfigsResponse) -> KafkaError | None:
    if not response.results:
        return ProtocolError(
            "no result for the broker", struct="DescribeConfigsResponse", field="results"
        )
    result = response.results[0]
    if not result.error_code:
        return None
    return broker_error(
        result.error_code,
        "looking up the brokers' default numbers of partitions and replicas failed",
        broker_message=result.error_message,
    )


async def wait_until_seen(core: ClientCore, counts: Mapping[str, int], time_left: float) -> bool:
    """Wait until the brokers show each topic with at least the expected partitions and leaders.

    Args:
        core: The client's.
        counts: Expected number of partitions by topic name; ``GONE`` for a deleted one.
        time_left: Seconds that the caller has left.

    Returns:
        Whether all of them do. A broker that can't be asked doesn't count.
    """
    deadline = core.clock.now() + min(time_left, PATIENCE)
    waiting = sorted(core.metadata.view.brokers)[:BROKERS_ASKED]
    attempt = 0
    while waiting:
        left = deadline - core.clock.now()
        if left <= 0:
            core.hooks.log(logger).info(
                "topics=%d not yet seen by brokers=%s", len(counts), waiting
            )
            return False
        waiting = await _unaware(core, waiting, counts, left)
        if waiting:
            # Starts shorter than the back-off of failures: nothing has failed.
            await core.calls.pause(min(0.02 * 2**attempt, 0.5, left))
            attempt += 1
    return True


async def _unaware(
    core: ClientCore, node_ids: list[int], counts: Mapping[str, int], timeout: float
) -> list[int]:
    """Return those of the brokers that don't show the topics as expected yet."""

    def build(version: int) -> MetadataRequest:
        return request_for(list(counts), version)

    futures = [
        (node_id, core.network.send(node_id, build, api=MetadataRequest, timeout=timeout))
        for node_id in node_ids
    ]
    unaware = []
    for node_id, future in futures:
        try:
            if not _shows(await future, counts):
                unaware.append(node_id)
        except KafkaError as error:
            core.calls.check_ended()
            core.hooks.log(logger).debug("node=%d can't be asked for topics: %s", node_id, error)
    return unaware


def _shows(response: MetadataResponse, counts: Mapping[str, int]) -> bool:
    shown = {
        topic.name: sum(1 for p in topic.partitions if p.leader_id >= 0)
        for topic in response.topics
        if not topic.error_code
    }
    return all(
        name not in shown if count == GONE else shown.get(name, GONE) >= count
        for name, count in counts.items()
    )


async def describe_topics(
    core: ClientCore, refs: Sequence[TopicRef], timeout: float
) -> dict[TopicRef, TopicDescription | KafkaError]:
    """See ``Admin.describe_topics``."""
    retry_state = core.calls.retry_state("Metadata", timeout)
    found: dict[TopicRef, TopicDescription | KafkaError] = {}
    for chunk in descriptions.chunks(refs):

        def build(version: int, chunk: Sequence[TopicRef] = chunk) -> MetadataRequest:
            return descriptions.request_for(chunk, version)

        try:
            response: MetadataResponse = await core.calls.call(
                AnyNode(), build, api=MetadataRequest, timeout=retry_state.time_left()
            )
        except NoCommonVersion as error:
            found |= dict.fromkeys(chunk, error)
        else:
            found |= descriptions.read_descriptions(response, chunk)
    missing = ProtocolError("Metadata leaves out a topic that was asked for")
    return {ref: found.get(ref, missing) for ref in refs}


async def list_topics(core: ClientCore, internal: bool, timeout: float) -> list[TopicListing]:
    """See ``Admin.list_topics``."""
    raw: RawResponse = await core.calls.call(
        AnyNode(), descriptions.request_for_all, api=MetadataRequest, timeout=timeout, raw=True
    )
    try:
        response = await run_sliced(MetadataResponse.decode_steps(raw.body, raw.version))
    finally:
        raw.release()
    return await run_sliced(descriptions.listing_steps(response, internal=internal))


async def describe_cluster(core: ClientCore, timeout: float) -> ClusterDescription:
    """See ``Admin.describe_cluster``."""
    retry_state = core.calls.retry_state("DescribeCluster", timeout)
    try:
        response = await core.calls.call(
            AnyNode(), DescribeClusterRequest(), timeout=timeout, check=descriptions.cluster_error
        )
    except NoCommonVersion:
        metadata: MetadataResponse = await core.calls.call(
            AnyNode(),
            lambda version: descriptions.request_for([], max(version, 1)),
            api=MetadataRequest,
            timeout=retry_state.time_left(),
        )
        return descriptions.cluster_from_metadata(metadata)
    return descriptions.cluster_from_describe_cluster(response)


async def list_offsets(
    core: ClientCore,
    specs: Mapping[TopicPartition, OffsetSpec | int],
    isolation: IsolationLevel,
    timeout: float,
) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError | None]:
    """See ``Admin.list_offsets``."""
    found = await offset_lookup.list_offsets(core, specs, isolation=isolation, timeout=timeout)
    return {
        key: None if isinstance(got, OffsetAndTimestamp) and got.offset < 0 else got
        for key, got in found.items()
    }


async def end_transaction(
    core: ClientCore, prepared: PreparedTransaction, timeout: float, *, commit: bool
) -> None:
    """See ``Admin.end_transaction``: send EndTxn to the coordinator until there is a response."""
    if prepared.is_empty:
        return
    name = prepared.transactional_id
    what = f"EndTxn of transactional id {name}"

    def check(response: EndTxnResponse, node_id: int) -> KafkaError | None:
        code = response.error_code
        return coordinator_error(code, f"{what} failed", node_id=node_id) if code else None

    await Coordinator(core, name, CoordinatorKey.TRANSACTION).call(
        EndTxnRequest(name, prepared.producer_id, prepared.epoch, commit),
        api=EndTxnRequest,
        check=check,
        may_repeat=lambda asked, error: asked == EndTxnRequest.NAME and error.retriable,
        retry_state=core.calls.retry_state(what, timeout),
        max_version=None if prepared.protocol > 1 else _LAST_WITHOUT_BUMP,
    )
