"""Looking at topics, offsets and the cluster: asks any broker, or the leaders. Changes nothing.

Called by ``Admin``. What is asked and how it is read is in ``descriptions``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kclient.admin import descriptions
from kclient.admin.descriptions import ClusterDescription, TopicDescription, TopicListing
from kclient.admin.topics import TopicRef
from kclient.cluster import offset_lookup
from kclient.cluster.calls import AnyNode
from kclient.cluster.wakeups import run_sliced
from kclient.errors import KafkaError, NoCommonVersion, ProtocolError
from kclient.protocol.messages.describe_cluster import DescribeClusterRequest
from kclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kclient.types import IsolationLevel, OffsetAndTimestamp, OffsetSpec, TopicPartition

if TYPE_CHECKING:
    from kclient.cluster.core import ClientCore
    from kclient.network import RawResponse


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
        said: MetadataResponse = await core.calls.call(
            AnyNode(),
            lambda version: descriptions.request_for([], max(version, 1)),
            api=MetadataRequest,
            timeout=retry_state.time_left(),
        )
        return descriptions.cluster_from_metadata(said)
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
