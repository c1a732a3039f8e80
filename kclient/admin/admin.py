"""Admin: the facade for administration of topics and security, and for descriptions. Thin.

Each method checks its arguments, sends its requests through ``cluster.calls`` or
``cluster.fanout``, and returns values. The S file of each subject builds the requests and reads
the responses.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeVar, overload

from kclient.admin import arguments
from kclient.admin.arguments import When
from kclient.admin.descriptions import ClusterDescription, TopicDescription, TopicListing
from kclient.admin.topics import CreatedTopic, DeletedTopic, NewTopic, TopicRef
from kclient.cluster.core import AsyncOnly, ClientCore, Health, missing_attribute
from kclient.config import AdminConfig, Bootstrap
from kclient.durations import call_timeout
from kclient.errors import InvalidArgument, KafkaError, a_or_an
from kclient.types import (
    IsolationLevel,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PreparedTransaction,
    TopicPartition,
)

if TYPE_CHECKING:
    from typing import Unpack

    from kclient.admin.acls import AclBinding, AclFilter, AclRef
    from kclient.admin.delegation_tokens import DelegationToken, TokenRef
    from kclient.admin.quotas import QuotaEntity, Quotas
    from kclient.admin.users import ScramAlteration
    from kclient.hooks import Dialer, Observer
    from kclient.keywords import AdminSettings

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

SHOWN = 5
"""Other errors that the raised one names."""


class Admin(AsyncOnly):
    """A client for administration: topics, partitions, offsets, the cluster, security.

    Methods about several items ask about all of them and then raise the error of the first one
    that failed, with notes about the others; those that could be done are done. With
    ``return_errors=True`` they raise nothing of the kind, and the errors are values of the result.

    ``timeout`` is in seconds for the whole call with its retries, ``api_timeout`` by default. Each
    method raises ``RequestTimedOut`` when it is over, ``ClientClosed``, ``WrongContext`` and
    ``BackgroundTaskDied`` as every client does, and ``InvalidArgument`` at once for an argument
    that can't be right.

    Args:
        bootstrap: ``"host:port"``, several with commas, or a sequence of them; None for
            that of ``config``.
        config: Settings, if they are kept in one value.
        observers: Receive events.
        dialer: Opens connections; sockets by default.
        **settings: Single settings, over ``config``.

    Example::

        async with kclient.Admin("localhost:9092") as admin:
            await admin.create_topics([NewTopic("flights", partitions=6)])
    """

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        config: AdminConfig | None = None,
        observers: Sequence[Observer] = (),
        dialer: Dialer | None = None,
        **settings: Unpack[AdminSettings],
    ) -> None:
        merged = AdminConfig.of(config, {"bootstrap": bootstrap, **settings})
        self._core = ClientCore(merged, observers=observers, dialer=dialer)

    if not TYPE_CHECKING:
        __getattr__ = missing_attribute

    def __repr__(self) -> str:
        return self._core.client_repr("Admin")

    async def start(self) -> None:
        """Connect. ``async with`` does it.

        Raises:
            BootstrapFailed: No bootstrap address led to a cluster within ``bootstrap_timeout``.
                This client is closed then: make a new client to try again.
            ClientClosed: It was started or closed before.

        Cancellation: nothing stays open; the client counts as closed.
        """
        await self._core.start()

    async def close(self, timeout: float = 5.0) -> None:
        """Disconnect; calls in flight end with ClientClosed. Closing twice is fine.

        Args:
            timeout: Seconds after which connections are cut off. Of several calls at once, the
                one with the least time counts.

        Cancellation: it closes all the same, a moment later; another ``close()`` waits for that.
        """
        await self._core.close(call_timeout(timeout))

    async def __aenter__(self) -> Self:
        """``start``. Cancellation: as there."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """``close``. Cancellation: as there."""
        await self.close()

    # Topics

    @overload
    async def create_topics(
        self,
        topics: Iterable[NewTopic],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[str, CreatedTopic]: ...
    @overload
    async def create_topics(
        self,
        topics: Iterable[NewTopic],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
        return_errors: bool,
    ) -> dict[str, CreatedTopic | KafkaError]: ...
    async def create_topics(
        self,
        topics: Iterable[NewTopic],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
        return_errors: bool = False,
    ) -> Mapping[str, CreatedTopic | KafkaError]:
        """Create topics, and wait a moment until the brokers show them with leaders.

        Where partitions or replication factor are left open, the brokers' defaults apply; before
        Apache Kafka 2.4 they are looked up in the controller's settings.

        Args:
            topics: What to create.
            validate_only: Only check whether it could be done.
            timeout: Seconds, see the class.
            return_errors: See the class.

        Returns:
            What was created, by name.

        Raises:
            TopicAlreadyExists: There is a topic of that name. If an earlier attempt got no
                response, a note adds that it may have created this topic.
            InvalidReplicationFactor: More replicas than brokers.
            InvalidPartitions, BrokerInvalidConfig, PolicyViolation, TopicAuthorizationFailed: As
                the broker reports.

        Cancellation: abandons the response. Topics may be created, now or a moment later; the
        client can be used on.

        Example::

            await admin.create_topics(
                [NewTopic("flights", partitions=6, configs={"retention.ms": 86_400_000})]
            )
        """
        from kclient.admin.operations import create_topics

        self._core.check_usable()
        chosen = arguments.new_topics(topics)
        arguments.check_flag("validate_only", validate_only)
        arguments.check_flag("return_errors", return_errors)
        outcomes = await create_topics(self._core, chosen, validate_only, self._time(timeout))
        return outcomes if return_errors else values_or_raise(outcomes)

    @overload
    async def delete_topics(
        self,
        topics: Iterable[TopicRef],
        *,
        timeout: float | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[TopicRef, DeletedTopic]: ...
    @overload
    async def delete_topics(
        self,
        topics: Iterable[TopicRef],
        *,
        timeout: float | None = None,
        return_errors: bool,
    ) -> dict[TopicRef, DeletedTopic | KafkaError]: ...
    async def delete_topics(
        self,
        topics: Iterable[TopicRef],
        *,
        timeout: float | None = None,
        return_errors: bool = False,
    ) -> Mapping[TopicRef, DeletedTopic | KafkaError]:
        """Delete topics, and wait a moment until the brokers don't show them any more.

        In clusters with ZooKeeper (before Apache Kafka 4.0) the deletion still goes on in the
        background then: for a moment, creating a topic of that name may be refused.

        Args:
            topics: Names, or ids of 16 bytes (Apache Kafka 2.8 or newer).
            timeout: Seconds, see the class.
            return_errors: See the class.

        Returns:
            What was deleted, by name or id as asked.

        Raises:
            UnknownTopicOrPartition, UnknownTopicId: There is no such topic.
            TopicDeletionDisabled: The cluster doesn't allow it.
            TopicAuthorizationFailed: This client may not.
            NoCommonVersion: By id, and the controller is too old.

        Cancellation: abandons the response. Topics may be deleted, now or a moment later; the
        client can be used on.
        """
        from kclient.admin.operations import delete_topics

        self._core.check_usable()
        refs = arguments.topic_refs(topics)
        arguments.check_flag("return_errors", return_errors)
        outcomes = await delete_topics(self._core, refs, self._time(timeout))
        return outcomes if return_errors else values_or_raise(outcomes)

    @overload
    async def create_partitions(
        self,
        totals: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
        timeout: float | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[str, int]: ...
    @overload
    async def create_partitions(
        self,
        totals: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
        timeout: float | None = None,
        return_errors: bool,
    ) -> dict[str, int | KafkaError]: ...
    async def create_partitions(
        self,
        totals: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
        timeout: float | None = None,
        return_errors: bool = False,
    ) -> Mapping[str, int | KafkaError]:
        """Give topics more partitions. Keys then go to other partitions than before.

        Args:
            totals: How many partitions each topic shall have, those that it has included.
            assignments: For each *added* partition the node ids of its replicas, by topic; the
                brokers choose by default.
            validate_only: Only check whether it could be done.
            timeout: Seconds, see the class.
            return_errors: See the class.

        Returns:
            The new totals, by name.

        Raises:
            InvalidPartitions: Not more than there are.
            UnknownTopicOrPartition: There is no such topic.
            InvalidReplicaAssignment, TopicAuthorizationFailed: As the broker reports.

        Cancellation: abandons the response. Partitions may be added, now or a moment later; the
        client can be used on.
        """
        from kclient.admin.operations import create_partitions

        self._core.check_usable()
        checked = arguments.totals(totals, assignments)
        arguments.check_flag("validate_only", validate_only)
        arguments.check_flag("return_errors", return_errors)
        outcomes = await create_partitions(self._core, *checked, validate_only, self._time(timeout))
        return outcomes if return_errors else values_or_raise(outcomes)

    @overload
    async def describe_topics(
        self,
        topics: Iterable[TopicRef],
        *,
        timeout: float | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[TopicRef, TopicDescription]: ...
    @overload
    async def describe_topics(
        self,
        topics: Iterable[TopicRef],
        *,
        timeout: float | None = None,
        return_errors: bool,
    ) -> dict[TopicRef, TopicDescription | KafkaError]: ...
    async def describe_topics(
        self,
        topics: Iterable[TopicRef],
        *,
        timeout: float | None = None,
        return_errors: bool = False,
    ) -> Mapping[TopicRef, TopicDescription | KafkaError]:
        """Describe partitions, leaders, replicas and ISR of topics, as a broker sees them now.

        Args:
            topics: Names, or ids of 16 bytes (Apache Kafka 3.0 or newer).
            timeout: Seconds, see the class.
            return_errors: See the class.

        Returns:
            The description of each, by name or id as asked.

        Raises:
            UnknownTopicOrPartition, UnknownTopicId: There is no such topic.
            TopicAuthorizationFailed: This client may not see it.
            NoCommonVersion: By id, and the broker is too old.

        Cancellation: safe, nothing is changed anywhere; the client can be used on.
        """
        from kclient.admin.operations import describe_topics

        self._core.check_usable()
        refs = arguments.topic_refs(topics)
        arguments.check_flag("return_errors", return_errors)
        outcomes = await describe_topics(self._core, refs, self._time(timeout))
        return outcomes if return_errors else values_or_raise(outcomes)

    async def list_topics(
        self, *, internal: bool = False, timeout: float | None = None
    ) -> list[TopicListing]:
        """List all topics that this client may see, by name.

        Args:
            internal: Kafka's own ones, such as ``__consumer_offsets``, too.
            timeout: Seconds, see the class.

        Cancellation: safe, nothing is changed anywhere; the client can be used on.
        """
        from kclient.admin.operations import list_topics

        self._core.check_usable()
        arguments.check_flag("internal", internal)
        return await list_topics(self._core, internal, self._time(timeout))

    # Cluster and offsets

    async def describe_cluster(self, *, timeout: float | None = None) -> ClusterDescription:
        """Describe the cluster: its id, its controller and its brokers, as a broker sees them now.

        Args:
            timeout: Seconds, see the class.

        Cancellation: safe, nothing is changed anywhere; the client can be used on.
        """
        from kclient.admin.operations import describe_cluster

        self._core.check_usable()
        return await describe_cluster(self._core, self._time(timeout))

    @overload
    async def list_offsets(
        self,
        specs: Mapping[TopicPartition, When],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        timeout: float | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]: ...
    @overload
    async def list_offsets(
        self,
        specs: Mapping[TopicPartition, When],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        timeout: float | None = None,
        return_errors: bool,
    ) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError | None]: ...
    async def list_offsets(
        self,
        specs: Mapping[TopicPartition, When],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        timeout: float | None = None,
        return_errors: bool = False,
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | KafkaError | None]:
        """Look up offsets of partitions: earliest, latest, by time, of the greatest timestamp.

        Args:
            specs: Per partition an ``OffsetSpec``, or for the first record that is not older than
                a time: an aware datetime or int milliseconds since the epoch.
            isolation: ``READ_COMMITTED`` makes ``LATEST`` the last stable offset.
            timeout: Seconds, see the class.
            return_errors: See the class.

        Returns:
            What was found, None where no record is that young.

        Raises:
            UnknownTopicOrPartition: There is no such partition.
            NoCommonVersion: The leader is too old for that ``OffsetSpec``.
            TopicAuthorizationFailed: This client may not read it.

        Cancellation: safe, nothing is changed anywhere; the client can be used on.

        Example::

            ends = await admin.list_offsets({TopicPartition("flights", 0): OffsetSpec.LATEST})
        """
        from kclient.admin.operations import list_offsets

        self._core.check_usable()
        chosen = arguments.offset_specs(specs)
        arguments.check_isolation(isolation)
        arguments.check_flag("return_errors", return_errors)
        outcomes = await list_offsets(self._core, chosen, isolation, self._time(timeout))
        return outcomes if return_errors else values_or_raise(outcomes)

    @overload
    async def alter_consumer_group_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        *,
        timeout: float | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[TopicPartition, None]: ...
    @overload
    async def alter_consumer_group_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        *,
        timeout: float | None = None,
        return_errors: bool,
    ) -> dict[TopicPartition, KafkaError | None]: ...
    async def alter_consumer_group_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        *,
        timeout: float | None = None,
        return_errors: bool = False,
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Set committed offsets of a group that has no members, or of a new one.

        Args:
            group: Its name; one that doesn't exist comes into being.
            offsets: By partition the next one to read. Those of other partitions stay.
            timeout: Seconds, see the class.
            return_errors: See the class.

        Returns:
            None for each partition that was set.

        Raises:
            UnknownMemberId: The group has members: they commit by themselves.
            RequestTimedOut: ``timeout`` passed. A partition that doesn't exist ends so, too, as
                the coordinator may not have heard of it yet: the cause says it.
            GroupAuthorizationFailed, TopicAuthorizationFailed: This client may not do that.

        Cancellation: the offsets may be set all the same.

        Example::

            await admin.alter_consumer_group_offsets("audit", {TopicPartition("flights", 0): 42})
        """
        from kclient.admin.group_offsets import alter_consumer_group_offsets

        self._core.check_usable()
        chosen = arguments.group_offsets(group, offsets)
        arguments.check_flag("return_errors", return_errors)
        outcomes = await alter_consumer_group_offsets(
            self._core, group, chosen, self._time(timeout)
        )
        return outcomes if return_errors else values_or_raise(outcomes)

    # Transactions

    async def end_transaction(
        self, prepared: PreparedTransaction, *, commit: bool, timeout: float | None = None
    ) -> None:
        """Commit or abort a transaction that a producer, of whatever process, has prepared.

        The same call may be repeated, until it has an outcome. The producer that prepared it, if it
        goes on, has to end it the same way.

        Args:
            prepared: What ``Transaction.prepare`` returned.
            commit: False aborts it.

        Raises:
            ProducerFenced: Another producer has started with its transactional id meanwhile, or the
                coordinator has aborted it after ``transaction_timeout``. So it was aborted, unless
                an earlier attempt to commit it, here or elsewhere, had no response.
            InvalidTxnState, InvalidProducerIdMapping: It was ended before, the other way; or, in
                protocol V2, aborted after ``transaction_timeout``.
            TransactionalIdAuthorizationFailed: The principal may not write under that id.

        Cancellation: it may be ended all the same.

        Example::

            await admin.end_transaction(prepared, commit=True)
        """
        from kclient.admin.operations import end_transaction

        self._core.check_usable()
        if not isinstance(prepared, PreparedTransaction):
            raise InvalidArgument(
                f"{a_or_an(type(prepared).__name__)} can't be ended: a PreparedTransaction is "
                "needed, as `prepare()` of a transaction returns it"
            )
        arguments.check_flag("commit", commit)
        await end_transaction(self._core, prepared, self._time(timeout), commit=commit)

    # Security

    @overload
    async def create_acls(
        self,
        bindings: Iterable[AclBinding],
        *,
        timeout: float | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[AclBinding, None]: ...
    @overload
    async def create_acls(
        self,
        bindings: Iterable[AclBinding],
        *,
        timeout: float | None = None,
        return_errors: bool,
    ) -> dict[AclBinding, KafkaError | None]: ...
    async def create_acls(
        self,
        bindings: Iterable[AclBinding],
        *,
        timeout: float | None = None,
        return_errors: bool = False,
    ) -> Mapping[AclBinding, KafkaError | None]:
        """Create ACLs; one that exists already stays. Brokers apply them a moment later.

        Args:
            bindings: What to create.
            timeout: Seconds, see the class.
            return_errors: See the class.

        Returns:
            None for each that there is now.

        Raises:
            SecurityDisabled: The brokers have no authorizer.
            ClusterAuthorizationFailed: This client may not: it needs ALTER on the cluster.
            InvalidRequest: As the broker reports, such as a name of the cluster that it hasn't.
            NoCommonVersion: A prefixed one, and the broker is older than Apache Kafka 2.0.

        Cancellation: abandons the response. ACLs may be created, now or a moment later; the
        client can be used on.

        Example::

            await admin.create_acls(
                [AclBinding("topic", "orders-", "User:alice", "read", pattern_type="prefixed")]
            )
        """
        from kclient.admin import acls
        from kclient.admin.security_operations import create_acls

        self._core.check_usable()
        chosen = acls.checked("bindings", bindings, acls.AclBinding, "AclBinding")
        arguments.check_flag("return_errors", return_errors)
        outcomes = await create_acls(self._core, chosen, self._time(timeout))
        return outcomes if return_errors else values_or_raise(outcomes)

    async def describe_acls(
        self, acl_filter: AclFilter | None = None, *, timeout: float | None = None
    ) -> list[AclBinding]:
        """Describe the ACLs that match, all of them by default.

        Args:
            acl_filter: Which ones.
            timeout: Seconds, see the class.

        Raises:
            SecurityDisabled: The brokers have no authorizer.
            ClusterAuthorizationFailed: This client may not: it needs DESCRIBE on the cluster.

        Cancellation: safe, nothing is changed anywhere; the client can be used on.

        Example::

            await admin.describe_acls(AclFilter("topic", "orders", pattern_type="match"))
        """
        from kclient.admin import acls
        from kclient.admin.security_operations import describe_acls

        self._core.check_usable()
        chosen = acls.AclFilter() if acl_filter is None else acl_filter
        acls.checked("acl_filter", [chosen], acls.AclFilter, "AclFilter, or None")
        return await describe_acls(self._core, chosen, self._time(timeout))

    @overload
    async def delete_acls(
        self,
        filters: Iterable[AclRef],
        *,
        timeout: float | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[AclRef, list[AclBinding]]: ...
    @overload
    async def delete_acls(
        self,
        filters: Iterable[AclRef],
        *,
        timeout: float | None = None,
        return_errors: bool,
    ) -> dict[AclRef, list[AclBinding] | KafkaError]: ...
    async def delete_acls(
        self,
        filters: Iterable[AclRef],
        *,
        timeout: float | None = None,
        return_errors: bool = False,
    ) -> Mapping[AclRef, list[AclBinding] | KafkaError]:
        """Delete all ACLs that match. Brokers stop to apply them a moment later.

        Args:
            filters: Which ones: an ``AclFilter``, or an ``AclBinding`` for exactly that one.
            timeout: Seconds, see the class.
            return_errors: See the class.

        Returns:
            What was deleted, by filter; an ACL that matches several is there for one of them or
            more. An attempt whose response was lost is repeated: what the first one deleted isn't
            there then.

        Raises:
            SecurityDisabled: The brokers have no authorizer.
            ClusterAuthorizationFailed: This client may not: it needs ALTER on the cluster.
            NoCommonVersion: Of other than literal ones, and the broker is older than 2.0.

        Cancellation: abandons the response. ACLs may be deleted, now or a moment later; the
        client can be used on.

        Example::

            await admin.delete_acls([AclFilter(principal="User:alice")])
        """
        from kclient.admin import acls
        from kclient.admin.security_operations import delete_acls

        self._core.check_usable()
        chosen = acls.checked("filters", filters, acls.AclRef, "AclFilter or AclBinding")
        arguments.check_flag("return_errors", return_errors)
        outcomes = await delete_acls(self._core, chosen, self._time(timeout))
        return outcomes if return_errors else values_or_raise(outcomes)

    @overload
    async def alter_client_quotas(
        self,
        alterations: Mapping[QuotaEntity, Quotas],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[QuotaEntity, None]: ...
    @overload
    async def alter_client_quotas(
        self,
        alterations: Mapping[QuotaEntity, Quotas],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
        return_errors: bool,
    ) -> dict[QuotaEntity, KafkaError | None]: ...
    async def alter_client_quotas(
        self,
        alterations: Mapping[QuotaEntity, Quotas],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
        return_errors: bool = False,
    ) -> Mapping[QuotaEntity, KafkaError | None]:
        """Set and remove quotas of clients (Apache Kafka 2.6 or newer; by address, 2.7).

        Args:
            alterations: By entity the limits: ``producer_byte_rate``, ``consumer_byte_rate``,
                ``request_percentage``, ``controller_mutation_rate``, for addresses
                ``connection_creation_rate``. None removes one; those that are left out stay.
            validate_only: Only check whether it could be done.
            timeout: Seconds, see the class.
            return_errors: See the class.

        Returns:
            None for each entity that was altered.

        Raises:
            InvalidRequest: A limit, or a combination of an entity, that the brokers don't have.
            ClusterAuthorizationFailed: This client may not: it needs ALTER_CONFIGS on the cluster.
            NoCommonVersion: The broker is too old.

        Cancellation: abandons the response. Quotas may be altered, now or a moment later; the
        client can be used on.

        Example::

            await admin.alter_client_quotas(
                {QuotaEntity(user="alice", client_id="loader"): {"producer_byte_rate": 1_000_000}}
            )
        """
        from kclient.admin.quotas import checked_alterations
        from kclient.admin.security_operations import alter_client_quotas

        self._core.check_usable()
        chosen = checked_alterations(alterations)
        arguments.check_flag("validate_only", validate_only)
        arguments.check_flag("return_errors", return_errors)
        outcomes = await alter_client_quotas(self._core, chosen, validate_only, self._time(timeout))
        return outcomes if return_errors else values_or_raise(outcomes)

    async def describe_client_quotas(
        self,
        entity: QuotaEntity | None = None,
        *,
        strict: bool = False,
        timeout: float | None = None,
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Describe the quotas that are set (Apache Kafka 2.6 or newer).

        Args:
            entity: Of whom: of entities with these parts, ``QuotaEntity.ANY`` standing for all
                names; None for all entities.
            strict: Only those that have no other part.
            timeout: Seconds, see the class.

        Returns:
            By entity the limits by name.

        Raises:
            InvalidRequest: A combination of parts that the brokers don't have.
            ClusterAuthorizationFailed: This client may not: it needs DESCRIBE_CONFIGS on the
                cluster.
            NoCommonVersion: The broker is too old.

        Cancellation: safe, nothing is changed anywhere; the client can be used on.

        Example::

            await admin.describe_client_quotas(QuotaEntity(user=QuotaEntity.ANY), strict=True)
        """
        from kclient.admin.quotas import QuotaEntity
        from kclient.admin.security_operations import describe_client_quotas

        self._core.check_usable()
        if not isinstance(entity, QuotaEntity | None):
            raise InvalidArgument(f"entity={entity!r}: allowed are a QuotaEntity and None")
        arguments.check_flag("strict", strict)
        return await describe_client_quotas(self._core, entity, strict, self._time(timeout))

    @overload
    async def alter_user_scram_credentials(
        self,
        alterations: Iterable[ScramAlteration],
        *,
        timeout: float | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[ScramAlteration, None]: ...
    @overload
    async def alter_user_scram_credentials(
        self,
        alterations: Iterable[ScramAlteration],
        *,
        timeout: float | None = None,
        return_errors: bool,
    ) -> dict[ScramAlteration, KafkaError | None]: ...
    async def alter_user_scram_credentials(
        self,
        alterations: Iterable[ScramAlteration],
        *,
        timeout: float | None = None,
        return_errors: bool = False,
    ) -> Mapping[ScramAlteration, KafkaError | None]:
        """Make users of SCRAM, change their passwords, delete them (Apache Kafka 2.7 or newer).

        A password isn't sent, but what it is salted and hashed to, which is as good as it to who
        reads it on the way: use a connection with TLS. Brokers accept it a moment later.

        Args:
            alterations: ``ScramUpsertion`` and ``ScramDeletion``, of each user and mechanism one.
            timeout: Seconds, see the class.
            return_errors: See the class.

        Returns:
            None for each that was done.

        Raises:
            ResourceNotFound: There is no such user to delete, or not with that mechanism; or it was
                deleted by an attempt whose response was lost.
            UnacceptableCredential: As the broker reports.
            ClusterAuthorizationFailed: This client may not: it needs ALTER on the cluster.
            NoCommonVersion: The broker is too old.

        Cancellation: abandons the response. Users may be altered, now or a moment later; the
        client can be used on.

        Example::

            await admin.alter_user_scram_credentials([ScramUpsertion("alice", Secret("..."))])
        """
        from kclient.admin.security_operations import alter_scram_credentials
        from kclient.admin.users import checked_alterations

        self._core.check_usable()
        chosen = checked_alterations(alterations)
        arguments.check_flag("return_errors", return_errors)
        outcomes = await alter_scram_credentials(self._core, chosen, self._time(timeout))
        return outcomes if return_errors else values_or_raise(outcomes)

    @overload
    async def describe_user_scram_credentials(
        self,
        users: Iterable[str] | None = None,
        *,
        timeout: float | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[str, dict[str, int]]: ...
    @overload
    async def describe_user_scram_credentials(
        self,
        users: Iterable[str] | None = None,
        *,
        timeout: float | None = None,
        return_errors: bool,
    ) -> dict[str, dict[str, int] | KafkaError]: ...
    async def describe_user_scram_credentials(
        self,
        users: Iterable[str] | None = None,
        *,
        timeout: float | None = None,
        return_errors: bool = False,
    ) -> Mapping[str, dict[str, int] | KafkaError]:
        """Describe users of SCRAM (Apache Kafka 2.7 or newer).

        Args:
            users: Their names; None for all.
            timeout: Seconds, see the class.
            return_errors: See the class.

        Returns:
            By user the mechanisms with their iterations, such as ``{"SCRAM-SHA-512": 16384}``.

        Raises:
            ResourceNotFound: There is no such user.
            ClusterAuthorizationFailed: This client may not: it needs DESCRIBE on the cluster.
            NoCommonVersion: The broker is too old.

        Cancellation: safe, nothing is changed anywhere; the client can be used on.
        """
        from kclient.admin.security_operations import describe_scram_credentials
        from kclient.admin.users import check_user

        self._core.check_usable()
        names = None
        if users is not None:
            names = [check_user(name) for name in arguments.each("users", users)]
        arguments.check_flag("return_errors", return_errors)
        outcomes = await describe_scram_credentials(self._core, names, self._time(timeout))
        return outcomes if return_errors else values_or_raise(outcomes)

    async def create_delegation_token(
        self,
        *,
        owner: str | None = None,
        renewers: Iterable[str] = (),
        max_lifetime: float | None = None,
        timeout: float | None = None,
    ) -> DelegationToken:
        """Create a token by which others log in as its owner, until it expires.

        This client must have logged in by SASL, but not by a token, or have shown a certificate.
        Brokers accept the token a moment later. An attempt without a response is repeated, so that
        there may be another token, which expires unused.

        Args:
            owner: A principal such as ``"User:alice"``, which takes CREATE_TOKENS on that user
                and Apache Kafka 3.3; this client's own by default.
            renewers: Principals that may renew it, beside its owner.
            max_lifetime: Seconds; the brokers' ``delegation.token.max.lifetime.ms`` by default,
                and at most.
            timeout: Seconds, see the class.

        Raises:
            DelegationTokenAuthDisabled: The brokers have no ``delegation.token.secret.key``.
            DelegationTokenRequestNotAllowed: This client hasn't logged in like that.
            DelegationTokenAuthorizationFailed: It may not, for another owner.
            InvalidPrincipalType: A principal isn't ``User:...``.
            NoCommonVersion: For another owner, and the broker is too old.

        Cancellation: abandons the response. A token may be created; the client can be used on.

        Example::

            token = await admin.create_delegation_token(renewers=["User:scheduler"])
            security = token.security(ca_file="ca.pem")
        """
        from kclient.admin import delegation_tokens as tokens
        from kclient.admin.security_operations import create_delegation_token

        self._core.check_usable()
        if owner is not None:
            tokens.checked_principal("owner", owner)
        chosen = tokens.checked_principals("renewers", renewers)
        lifetime = tokens.checked_duration("max_lifetime", max_lifetime)
        return await create_delegation_token(
            self._core, owner, chosen, lifetime, self._time(timeout)
        )

    async def renew_delegation_token(
        self, token: TokenRef, *, period: float | None = None, timeout: float | None = None
    ) -> float:
        """Let a token live on; its owner and its renewers may do that.

        Args:
            token: The token, or its HMAC in base64.
            period: Seconds from now, but not beyond the token's maximum; the brokers'
                ``delegation.token.expiry.time.ms`` by default.
            timeout: Seconds, see the class.

        Returns:
            When it expires now, in seconds since the epoch.

        Raises:
            DelegationTokenNotFound: There is no such token.
            DelegationTokenExpired: It is too late.
            DelegationTokenOwnerMismatch: This client is neither owner nor renewer.

        Cancellation: abandons the response. It may be renewed; the client can be used on.
        """
        from kclient.admin import delegation_tokens as tokens
        from kclient.admin.security_operations import renew_delegation_token

        self._core.check_usable()
        hmac = tokens.hmac_of(token)
        seconds = tokens.checked_duration("period", period)
        return await renew_delegation_token(self._core, hmac, seconds, self._time(timeout))

    async def expire_delegation_token(
        self, token: TokenRef, *, after: float | None = None, timeout: float | None = None
    ) -> float:
        """Let a token expire: now, or sooner or later than it would.

        Sessions that are open go on until the brokers want a login again.

        Args:
            token: The token, or its HMAC in base64.
            after: Seconds from now, but not beyond the token's maximum; by default it is deleted
                at once.
            timeout: Seconds, see the class.

        Returns:
            When it expires, in seconds since the epoch.

        Raises:
            DelegationTokenNotFound, DelegationTokenExpired, DelegationTokenOwnerMismatch: As of
                ``renew_delegation_token``.

        Cancellation: abandons the response. It may be done; the client can be used on.
        """
        from kclient.admin import delegation_tokens as tokens
        from kclient.admin.security_operations import expire_delegation_token

        self._core.check_usable()
        hmac = tokens.hmac_of(token)
        seconds = tokens.checked_duration("after", after)
        return await expire_delegation_token(self._core, hmac, seconds, self._time(timeout))

    async def describe_delegation_tokens(
        self, owners: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> list[DelegationToken]:
        """Describe the tokens that this client owns, may renew, or may see by DESCRIBE.

        Args:
            owners: Only those of these principals, such as ``"User:alice"``.
            timeout: Seconds, see the class.

        Raises:
            DelegationTokenAuthDisabled, DelegationTokenRequestNotAllowed: As of
                ``create_delegation_token``.

        Cancellation: safe, nothing is changed anywhere; the client can be used on.
        """
        from kclient.admin import delegation_tokens as tokens
        from kclient.admin.security_operations import describe_delegation_tokens

        self._core.check_usable()
        names = None if owners is None else tokens.checked_principals("owners", owners)
        return await describe_delegation_tokens(self._core, names, self._time(timeout))

    # Looking at this client

    def health(self) -> Health:
        """A snapshot of how this client is; cheap, and free to call at any time.

        Returns:
            A ``kclient.cluster.core.Health``: ``ok``, state, age and last error of its metadata,
            internal tasks, ``nodes`` (a ``NodeHealth`` per broker: last response, last failure) and
            ``connections`` (a ``ConnectionHealth`` each).

        Raises:
            WrongContext: Called from another loop, thread or process than ``start``.

        Example::

            print(admin.health().ok)
        """
        return self._core.health()

    def metrics(self) -> dict[str, float]:
        """This client's counters and gauges by name."""
        return self._core.metrics()

    def _time(self, timeout: float | None) -> float:
        if timeout is None:
            return self._core.config.api_timeout
        return call_timeout(timeout, positive=True)


def values_or_raise(outcomes: Mapping[K, V | KafkaError]) -> dict[K, V]:
    """The values if all items have one; else the first error, with notes about the others.

    Raises:
        KafkaError: That of the first item that failed, in the order of asking. Its notes name the
            other failures, and how many items succeeded.
    """
    errors = {key: value for key, value in outcomes.items() if isinstance(value, KafkaError)}
    values = {key: value for key, value in outcomes.items() if not isinstance(value, KafkaError)}
    if not errors:
        return values
    (_, first), *others = errors.items()
    for key, error in others[:SHOWN]:
        first.add_note(f"{key} failed, too: {error}")
    if len(others) > SHOWN:
        first.add_note(f"... and {len(others) - SHOWN} more failed")
    if values:
        first.add_note(f"{len(values)} of {len(outcomes)} succeeded")
    raise first
