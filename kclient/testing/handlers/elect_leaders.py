"""ElectLeaders (43): preferred leaders, or any that are up where nobody leads (KIP-460)."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from kclient.testing.call import Call
from kclient.testing.refused import Refused

_PREFERRED, _UNCLEAN = 0, 1


def handle(call: Call, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Elect for each partition that is named, or for all that there are."""
    wanted = request.topic_partitions
    if wanted is not None and not wanted:
        return ElectLeadersResponse()  # Kafka doesn't look at the kind then
    kind = request.election_type
    try:
        if kind not in (_PREFERRED, _UNCLEAN):
            raise Refused(ErrorCode.INVALID_REQUEST, f"There is no election type {kind}.")
        image = call.broker.controller().image
    except Refused as refused:
        return _refuse_all(refused, wanted or [])
    if wanted is None:
        every = [
            TopicPartitions(topic.name, [one.index for one in topic.partitions])
            for topic in image.topics.values()
        ]
        found = [_of_topic(call, topic, kind) for topic in every]
        for result in found:  # those that have their leader aren't told
            result.partition_result = [
                one
                for one in result.partition_result
                if one.error_code != ErrorCode.ELECTION_NOT_NEEDED
            ]
    else:
        found = [_of_topic(call, topic, kind) for topic in wanted]
    return ElectLeadersResponse(replica_election_results=found)


def _refuse_all(refused: Refused, wanted: list[TopicPartitions]) -> ElectLeadersResponse:
    results = [
        ReplicaElectionResult(
            topic.topic,
            [PartitionResult(index, refused.code, refused.message) for index in topic.partitions],
        )
        for topic in wanted
    ]
    return ElectLeadersResponse(0, refused.code, results)


def _of_topic(call: Call, topic: TopicPartitions, kind: int) -> ReplicaElectionResult:
    results = [_elect(call, topic.topic, index, kind) for index in topic.partitions]
    return ReplicaElectionResult(topic.topic, results)


def _elect(call: Call, topic: str, index: int, kind: int) -> PartitionResult:
    try:
        call.check_fault(topic, index)
        controller = call.broker.controller()
        if topic not in controller.image.topics:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {topic!r}.")
        controller.elect(topic, index, unclean=kind == _UNCLEAN)
        call.check_fault(topic, index, after=True)
    except Refused as refused:
        return PartitionResult(index, refused.code, refused.message)
    return PartitionResult(index, ErrorCode.NONE, None)
