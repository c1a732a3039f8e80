"""``RequestContext``: the context of one request in a broker, for handlers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kclient.error_codes import ErrorCode
from kclient.protocol.primitives import ZERO_UUID
from kclient.testing.authorizer import (
    ALL_BITS,
    ANONYMOUS,
    AUTHORIZATION_FAILED,
    CLUSTER_NAME,
    OPERATIONS,
    AclOperation,
    Authorizer,
    ResourceType,
)
from kclient.testing.fault import Fault, Stage
from kclient.testing.listeners import INNER
from kclient.testing.request_info import named_entries
from kclient.testing.responses import ApiError

if TYPE_CHECKING:
    from kclient.testing.broker import Broker
    from kclient.testing.image import MetadataImage, PartitionRegistration, TopicImage
    from kclient.testing.quotas import Client
    from kclient.testing.replica import Replica
    from kclient.testing.request_log import ServedRequest
    from kclient.testing.sasl import SaslSession

_FETCH = 1


@dataclass(slots=True, eq=False, repr=False)
class RequestContext:
    """One request, its broker, and access to the cluster.

    Attributes:
        broker: The broker that got the request.
        api_key: Kafka's number of the API.
        version: Of the API.
        client_id: Sent by the client; may be None.
        request: The decoded message.
        served: Its entry in the log of requests.
        session: The authentication of its connection; None where none is needed.
        certified: The name in the client's certificate; None without one.
        authorizer: Decides what the client may do; None where it may do everything.
        used_faults: Faults that already acted on this request.
        throttle_ms: For how long its connection isn't read, if there is no response that says so.
    """

    broker: Broker
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    request: Any
    served: ServedRequest
    session: SaslSession | None = None
    certified: str | None = None
    authorizer: Authorizer | None = None
    used_faults: list[Fault] = field(default_factory=list)
    throttle_ms: int = 0

    @property
    def node_id(self) -> int:
        """Of the broker that got the request."""
        return self.broker.node_id

    @property
    def image(self) -> MetadataImage:
        """The cluster metadata that the broker knows."""
        return self.broker.image

    @property
    def user(self) -> str:
        """Who sent it: the name of its connection's login, or of the client's certificate."""
        return (self.certified if self.session is None else self.session.user) or ANONYMOUS

    @property
    def client(self) -> Client:
        """User and client id, for quotas."""
        return self.user, self.client_id or ""

    def charge(self, kind: str, amount: float) -> int:
        """Count bytes against the client's quota; return for how many ms it is throttled."""
        now = round(self.broker.now() * 1000)
        return self.broker.quotas.charge(self.image.quotas, kind, self.client, amount, now)

    @property
    def is_inner(self) -> bool:
        """Whether another broker sent it, on the listener for brokers."""
        return self.served.connection == INNER

    @property
    def connection(self) -> int:
        """The number of the connection."""
        return self.served.connection

    def topic_name(self, name: str | None, topic_id: bytes) -> str | None:
        """The topic's name where a request gives name or id; None for an id that is unknown."""
        if topic_id == ZERO_UUID:
            return name
        topic = self.image.topic_by_id(topic_id)
        return None if topic is None else topic.name

    # Authorization

    @property
    def principal(self) -> str:
        """The client, as ACLs name it."""
        return f"User:{self.user}"

    def allows(self, operation: AclOperation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether the client may do an operation on a resource."""
        authorizer = self.authorizer
        return authorizer is None or authorizer.allows(
            self.image.acls, self.principal, operation, kind, name
        )

    def denial(
        self, operation: AclOperation, kind: ResourceType, name: str = CLUSTER_NAME
    ) -> ErrorCode | None:
        """The error code of an operation that the client may not do; None if it may."""
        return None if self.allows(operation, kind, name) else AUTHORIZATION_FAILED[kind]

    def check_allowed(
        self, operation: AclOperation, kind: ResourceType, name: str = CLUSTER_NAME
    ) -> None:
        """Raise ApiError with that code if the client may not do an operation."""
        denied = self.denial(operation, kind, name)
        if denied is not None:
            raise ApiError(denied)

    def allowed(
        self, operation: AclOperation, kind: ResourceType, names: Iterable[str]
    ) -> Iterable[str]:
        """The names of resources on which the client may do an operation."""
        if self.authorizer is None:
            return names
        return [one for one in names if self.allows(operation, kind, one)]

    def operations_on(self, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        """The operations that the client may do on a resource, as bits."""
        if self.authorizer is None:
            return ALL_BITS[kind]
        return sum(1 << one for one in OPERATIONS[kind] if self.allows(one, kind, name))

    def allows_on_any(self, operation: AclOperation, kind: ResourceType) -> bool:
        """Whether there may be a resource on which the client may do an operation."""
        authorizer = self.authorizer
        return authorizer is None or authorizer.allows_on_any(
            self.image.acls, self.principal, operation, kind
        )

    def check_topic(self, operation: AclOperation, name: str) -> None:
        """Raise ApiError: TOPIC_AUTHORIZATION_FAILED, if the client may not do an operation.

        CLUSTER_ACTION, which brokers need for any topic, is one on the cluster.
        """
        of_cluster = operation is AclOperation.CLUSTER_ACTION
        kind = ResourceType.CLUSTER if of_cluster else ResourceType.TOPIC
        if not self.allows(operation, kind, CLUSTER_NAME if of_cluster else name):
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    # Topics and partitions

    def topic(
        self, operation: AclOperation, name: str | None, topic_id: bytes, by_id: bool
    ) -> TopicImage:
        """The topic of a request's entry, for an operation on it.

        Raises:
            ApiError: UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED, or UNKNOWN_TOPIC_OR_PARTITION.
        """
        if by_id:
            found = self.image.topic_by_id(topic_id)
            if found is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
            if self.authorizer is not None:
                self.check_topic(operation, found.name)
        else:
            if self.authorizer is not None:
                self.check_topic(operation, name or "")
            found = self.image.topics.get(name or "")
            if found is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return found

    def partition(self, topic: TopicImage, index: int) -> PartitionRegistration:
        """A partition of it. Raises ApiError: UNKNOWN_TOPIC_OR_PARTITION."""
        if not 0 <= index < len(topic.partitions):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic.partitions[index]

    def replica(
        self, topic: TopicImage, index: int, epoch: int = -1, *, leader_only: bool
    ) -> Replica:
        """This broker's replica of a partition, if it may serve it in the leader epoch it knows.

        Raises:
            ApiError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, or
                UNKNOWN_LEADER_EPOCH.
        """
        self.partition(topic, index)
        found = self.broker.replicas.get(topic.name, index)
        if found is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if epoch >= 0 and epoch != found.epoch:
            if epoch < found.epoch:
                raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if leader_only and not found.leads:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return found

    def error_for(
        self, topic: str | None = None, partition: int | None = None, *, after: bool = False
    ) -> ErrorCode | None:
        """The error code that a fault sets for an entry, or for the whole request."""
        stage = Stage.LATE_ENTRY if after else Stage.ENTRY
        if not self.broker.faults.any_at(stage):
            return None
        entry = {"topic": topic, "partition": partition}
        for fault in self.broker.faults.acting(stage, self, entry):
            if fault not in self.used_faults:
                fault.use(self)
            return fault.code
        return None

    def refusal_of(self, operation: AclOperation, topic: str, index: int) -> ErrorCode | None:
        """The code of an entry that isn't allowed, or for a fault or a missing partition."""
        if self.authorizer is not None:
            try:
                self.check_topic(operation, topic)
            except ApiError as refused:
                return refused.code
        code = self.error_for(topic, index)
        if code is None and self.image.partition(topic, index) is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return code

    def check_fault(
        self, topic: str | None = None, partition: int | None = None, *, after: bool = False
    ) -> None:
        """Raise ApiError if ``error_for`` returns a code."""
        code = self.error_for(topic, partition, after=after)
        if code is not None:
            raise ApiError(code)

    def entries(self) -> Iterator[tuple[str | None, int | None]]:
        """(topic, partition) of each entry of the request, for faults of certain entries."""
        yield from named_entries(self.request, self.topic_name)
        if self.api_key == _FETCH:
            session = self.broker.sessions.get(self.request.session_id)
            for key, one in session.partitions.items() if session is not None else ():
                yield key.topic if isinstance(key.topic, str) else one.wanted.name, key.partition
