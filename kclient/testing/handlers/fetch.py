"""Fetch (1): whole batches of partitions, at once or when there are enough of them.

``fetch_sessions.py`` has the sessions; a wait is one listener per partition and one timer, in
``DelayedFetch``. A consumer may read from any replica (KIP-392), as in Kafka, and is redirected to
one in its rack if ``replica.selector.class`` is set so. A follower also reads uncommitted records,
and its fetch offsets show the leader what it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kclient.error_codes import ErrorCode
from kclient.protocol.message import Response
from kclient.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from kclient.protocol.primitives import ZERO_UUID
from kclient.testing.authorizer import AclOperation
from kclient.testing.delayed_operations import DelayedFetch
from kclient.testing.fetch_sessions import (
    FetchContext,
    FetchPartitionData,
    PartitionKey,
    RequestedPartition,
)
from kclient.testing.follower_fetch import FOR_EVER_MS
from kclient.testing.image import NO_LEADER, TopicImage
from kclient.testing.log import PartitionLog, ReadResult
from kclient.testing.quotas import CONSUMER
from kclient.testing.replica import Replica
from kclient.testing.request_context import RequestContext
from kclient.testing.responses import ApiError, PendingResult

_SIZE_FIELD = 4
_FIRST_FROM_FOLLOWERS = 11
_FIRST_WITH_IDS = 13
_FIRST_WITH_HINTS = 16
_READ_COMMITTED = 1
_NEVER_READ = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
"""For these Kafka sends an empty list of aborted transactions, for others null."""


def handle(call: RequestContext, request: FetchRequest) -> FetchResponse | PendingResult[Response]:
    """Respond at once, or wait for ``min_bytes`` and no longer than ``max_wait_ms``."""
    sessions = call.broker.sessions
    code = call.error_for()
    if code is not None:
        return FetchResponse(error_code=code)
    follower = replica_of(request)
    context = sessions.open(
        request.session_id,
        request.session_epoch,
        _wanted(call, request),
        _forgotten(call, request),
        call.version,
        call.broker.now(),
        follower=follower if call.is_inner else -1,
    )
    if call.is_inner and request.max_wait_ms == FOR_EVER_MS:
        return _fetch_by_follower(call, request, context, follower)

    def attempt(last: bool) -> FetchResponse | int:
        answers = _read_all(call, context.wanted, follower, known=outcome is not None)
        missing = 0 if last else _missing(call, request, context, answers)
        return _respond(call, context, answers) if missing <= 0 else missing

    outcome: FetchResponse | int | None = None
    outcome = attempt(False)
    if not isinstance(outcome, int):
        return outcome
    found = (_find(call, one) for one in context.wanted)
    return DelayedFetch(
        [replica.log for replica in found if replica is not None],
        outcome,
        request.max_wait_ms / 1000,
        attempt,
        eager=request.isolation_level == _READ_COMMITTED,
        tail=follower >= 0,
    ).answer


def _fetch_by_follower(
    call: RequestContext, request: FetchRequest, context: FetchContext, follower: int
) -> FetchResponse | PendingResult[Response]:
    """Serve a follower: read the partitions it names and those with news; wait without limit."""
    follower_state = call.broker.replica_manager.follower_state(follower)
    named = [one.key for one in _wanted(call, request)]

    def wanted() -> list[RequestedPartition]:
        if context.session is None:
            return context.wanted
        known = context.session.partitions
        return [
            known[key].wanted
            for key in {**dict.fromkeys(named), **follower_state.news}
            if key in known
        ]

    def respond(
        asked: list[RequestedPartition], answers: list[FetchPartitionData]
    ) -> FetchResponse:
        for one, answer in zip(asked, answers, strict=True):
            if answer.size_bytes or answer.error_code or not _has_more(call, one):
                follower_state.news.pop(one.key, None)
        return _respond(call, context, answers)

    def attempt() -> FetchResponse:
        asked = wanted()
        return respond(asked, _read_all(call, asked, follower))

    if follower_state.take_woken() or context.session is None or not context.wanted:
        return attempt()
    while True:
        follower_state.has_grown = False
        asked = wanted()
        answers = _read_all(call, asked, follower)
        if _missing(call, request, context, answers) <= 0:
            return respond(asked, answers)
        named.clear()
        for one in answers:
            if context.session.partitions[one.key].is_behind(one):
                follower_state.news[one.key] = None
        # The follower's offsets may have completed a produce, and more followed.
        if not follower_state.has_grown:
            break
    known = context.session.partitions
    for key in [one for one in follower_state.news if one not in known]:
        del follower_state.news[key]  # of deleted topics; partitions named later are read anyway
    if follower_state.news and call.image.config.selects_by_rack:
        return attempt()
    return follower_state.delay(
        attempt, call.broker.config.replica_fetch_wait if follower_state.news else None
    )


def _has_more(call: RequestContext, wanted: RequestedPartition) -> bool:
    replica = _find(call, wanted)
    return replica is not None and replica.log.end_offset > wanted.fetch_offset


def replica_of(request: FetchRequest) -> int:
    """Node id of the follower that sent it, negative for clients."""
    return max(request.replica_id, request.replica_state.replica_id)


def _wanted(call: RequestContext, request: FetchRequest) -> Iterable[RequestedPartition]:
    """Each partition once; the last entry of several applies."""
    by_id = call.version >= _FIRST_WITH_IDS
    found: dict[PartitionKey, RequestedPartition] = {}
    for topic in request.topics:
        known_by = bytes(topic.topic_id) if by_id else topic.topic
        for one in topic.partitions:
            key = PartitionKey(known_by, one.partition)
            found[key] = RequestedPartition(
                key,
                one.fetch_offset,
                one.partition_max_bytes,
                one.current_leader_epoch,
                one.last_fetched_epoch,
                one.log_start_offset,
            )
    return found.values()


def _forgotten(call: RequestContext, request: FetchRequest) -> Iterator[PartitionKey]:
    by_id = call.version >= _FIRST_WITH_IDS
    for topic in request.forgotten_topics_data:
        known_by = bytes(topic.topic_id) if by_id else topic.topic
        for index in topic.partitions:
            yield PartitionKey(known_by, index)


def _missing(
    call: RequestContext,
    request: FetchRequest,
    context: FetchContext,
    answers: list[FetchPartitionData],
) -> int:
    """Number of bytes to wait for; 0 or less to respond at once."""
    if (
        request.max_wait_ms <= 0
        or not context.wanted
        or any(one.error_code or one.diverging or one.preferred_replica >= 0 for one in answers)
    ):
        return 0
    least = min(request.min_bytes, _limit(call, request))
    return least - sum(answer.size_bytes for answer in answers)


def _limit(call: RequestContext, request: FetchRequest) -> int:
    """The most bytes of a response: more than a quota allows in its window would never be sent."""
    most = min(request.max_bytes, call.broker.config.fetch_max_bytes)
    if call.image.quotas and replica_of(request) < 0:
        most = int(min(most, call.broker.quotas.most(call.image.quotas, CONSUMER, call.client)))
    return most


# Reading


def _read_all(
    call: RequestContext,
    wanted_ones: list[RequestedPartition],
    follower: int,
    *,
    known: bool = False,
) -> list[FetchPartitionData]:
    """Read each wanted partition; the first batch of all is read whatever its size (KIP-74).

    With ``known`` all partitions existed when the fetch began to wait.
    """
    request: FetchRequest = call.request
    left = _limit(call, request)
    answers = []
    first = True
    for wanted in wanted_ones:
        answer = FetchPartitionData(wanted.key)
        answers.append(answer)
        try:
            _read(call, request, wanted, answer, left, first, follower)
        except ApiError as refused:
            _refuse(call, wanted, answer, refused)
            if known:
                answer.aborted = None
        if answer.size_bytes:
            first = False
            left = max(left - answer.size_bytes, 0)
    if follower >= 0:
        call.broker.replica_manager.send_isr_changes()
    return answers


def _topic(call: RequestContext, wanted: RequestedPartition) -> TopicImage:
    known_by = wanted.key.topic
    right = AclOperation.READ
    if call.authorizer is not None and replica_of(call.request) >= 0:
        right = AclOperation.CLUSTER_ACTION
    if not isinstance(known_by, bytes):
        return call.topic(right, known_by, ZERO_UUID, False)
    found = call.image.topic_by_id(known_by)
    if found is not None:
        wanted.name = found.name
        if call.authorizer is not None:
            call.check_topic(right, found.name)
        return found
    if wanted.name is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
    call.topic(right, wanted.name, ZERO_UUID, False)
    raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID)  # the topic was recreated


def _find(call: RequestContext, wanted: RequestedPartition) -> Replica | None:
    try:
        return call.replica(_topic(call, wanted), wanted.key.partition, leader_only=False)
    except ApiError:
        return None


def _read(
    call: RequestContext,
    request: FetchRequest,
    wanted: RequestedPartition,
    answer: FetchPartitionData,
    left: int,
    first: bool,
    follower: int,
) -> None:
    topic = _topic(call, wanted)
    call.check_fault(topic.name, wanted.key.partition)
    replica = call.replica(
        topic,
        wanted.key.partition,
        wanted.current_leader_epoch,
        leader_only=follower >= 0 or call.version < _FIRST_FROM_FOLLOWERS,
    )
    log = replica.log
    call.broker.replica_manager.tidy(replica)
    committed = request.isolation_level == _READ_COMMITTED
    end = log.last_stable_offset if committed else log.high_watermark
    if follower >= 0:
        end = log.end_offset
    found = ReadResult([], 0)
    space = min(wanted.max_bytes, left)
    if space < 0:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)  # as Kafka's IllegalArgumentException
    elsewhere = NO_LEADER
    if follower < 0 and replica.leads and request.rack_id:
        elsewhere = call.broker.replica_manager.preferred_replica(
            replica, request.rack_id, wanted.fetch_offset
        )
    if elsewhere != NO_LEADER:
        answer.preferred_replica = elsewhere
    elif wanted.last_fetched_epoch < 0 or not _diverges(replica, wanted, answer):
        found = log.read(wanted.fetch_offset, space, end, at_least_one=first)
        if follower >= 0:
            call.broker.replica_manager.fetched_by(
                replica,
                follower,
                wanted.fetch_offset,
                wanted.log_start_offset,
                request.replica_state.replica_epoch,
            )
    answer.high_watermark = log.high_watermark
    answer.last_stable_offset = log.last_stable_offset
    answer.log_start_offset = log.start_offset
    answer.batches, answer.size_bytes = found
    if follower < 0 and found.batches:
        _cut(log, answer, space, end)
    if committed:
        reach = found.batches[-1].next_offset if found.batches else wanted.fetch_offset
        answer.aborted = log.transactions.aborted_between(wanted.fetch_offset, reach)


def _cut(log: PartitionLog, answer: FetchPartitionData, space: int, end: int) -> None:
    """Fill the remaining bytes with the start of the next batch, as Kafka slices its files."""
    space -= answer.size_bytes
    following = answer.batches[-1].next_offset
    if space <= 0 or following >= end:
        return
    more = log.read(following, 0, end, at_least_one=True).batches
    if more:
        answer.cut = more[0].data[:space]
        answer.size_bytes += len(answer.cut)


def _diverges(replica: Replica, wanted: RequestedPartition, answer: FetchPartitionData) -> bool:
    """Whether the reader's log has records that this log never had (KIP-595)."""
    log = replica.log
    ended = log.epochs.end_of(wanted.last_fetched_epoch, log.end_offset)
    if ended.epoch < 0 or ended.end_offset < 0:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if ended.epoch < wanted.last_fetched_epoch or ended.end_offset < wanted.fetch_offset:
        answer.diverging = (ended.epoch, ended.end_offset)
        return True
    return False


def _refuse(
    call: RequestContext, wanted: RequestedPartition, answer: FetchPartitionData, refused: ApiError
) -> None:
    answer.error_code = refused.code
    if refused.code in _NEVER_READ:
        answer.aborted = ()
    if call.version < _FIRST_WITH_HINTS or refused.code not in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
    ):
        return
    try:
        facts = call.partition(_topic(call, wanted), answer.key.partition)
    except ApiError:
        return
    answer.leader = (facts.leader, facts.leader_epoch)


# Responding


def _respond(
    call: RequestContext, context: FetchContext, answers: list[FetchPartitionData]
) -> FetchResponse:
    if call.image.quotas and replica_of(call.request) < 0:
        throttled = _throttled(call, context, answers)
        if throttled is not None:
            return throttled
    sessions = call.broker.sessions
    code, session_id, reported = sessions.finish(context, answers, call.broker.now())
    return _response(call, reported, code, session_id)


def _throttled(
    call: RequestContext, context: FetchContext, answers: list[FetchPartitionData]
) -> FetchResponse | None:
    """The response without records to a client over its quota; None for others.

    The session stays as it was, and what isn't sent doesn't count.
    """
    size = bytearray(_SIZE_FIELD)
    _response(call, call.broker.sessions.preview(context, answers)).encode_into(size, call.version)
    milliseconds = call.charge(CONSUMER, len(size))
    if not milliseconds:
        return None
    call.charge(CONSUMER, -len(size))
    code, session = context.error, context.session
    if session is not None and session.epoch != context.epoch:
        code = ErrorCode.INVALID_FETCH_SESSION_EPOCH
    return FetchResponse(milliseconds, code, 0 if session is None else session.session_id)


def _response(
    call: RequestContext,
    reported: list[FetchPartitionData],
    code: ErrorCode = ErrorCode.NONE,
    session_id: int = 0,
) -> FetchResponse:
    response = FetchResponse(error_code=code, session_id=session_id)
    last: bytes | str | None = None
    for answer in reported:
        known_by = answer.key.topic
        if known_by != last:  # as in Kafka, a topic may have several entries
            last = known_by
            response.responses.append(
                FetchableTopicResponse(topic_id=known_by)
                if isinstance(known_by, bytes)
                else FetchableTopicResponse(topic=known_by)
            )
        response.responses[-1].partitions.append(_partition_data(answer))
        if answer.leader is not None:
            _add_endpoint(call, response, answer.leader[0])
    return response


def _partition_data(answer: FetchPartitionData) -> PartitionData:
    parts: list[bytes | bytearray] = [one.data for one in answer.batches]
    if answer.cut:
        parts.append(answer.cut)
    shown = PartitionData(
        answer.key.partition,
        answer.error_code,
        answer.high_watermark,
        answer.last_stable_offset,
        answer.log_start_offset,
        aborted_transactions=(
            None
            if answer.aborted is None
            else [AbortedTransaction(one.producer_id, one.first_offset) for one in answer.aborted]
        ),
        records=parts[0] if len(parts) == 1 else b"".join(parts),
    )
    shown.preferred_read_replica = answer.preferred_replica
    if answer.diverging is not None:
        shown.diverging_epoch = EpochEndOffset(*answer.diverging)
    if answer.leader is not None:
        shown.current_leader = LeaderIdAndEpoch(*answer.leader)
    return shown


def _add_endpoint(call: RequestContext, response: FetchResponse, leader: int) -> None:
    if leader == NO_LEADER or any(one.node_id == leader for one in response.node_endpoints):
        return
    broker = call.image.brokers[leader]
    response.node_endpoints.append(
        NodeEndpoint(broker.node_id, broker.host, broker.port, broker.rack)
    )
