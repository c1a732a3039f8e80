"""Topics: the requests that create, delete and extend them, and their values. Sans-IO.

Each request goes to the controller, and its response has an outcome for every topic;
``cluster.fanout`` sends them. The differences between versions stay in here. ``NewTopic`` checks
itself when made, so that a bad argument fails where it was written.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from kclient.broker_errors import UnknownTopicId, UnknownTopicOrPartition
from kclient.cluster.fanout import ControllerRequest
from kclient.cluster.offset_lookup import broker_timeout_ms
from kclient.cluster.topic import NO_TOPIC_ID
from kclient.errors import InvalidArgument, KafkaError, NoCommonVersion, broker_error
from kclient.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from kclient.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kclient.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kclient.types import check_topic_name

if TYPE_CHECKING:
    from kclient.cluster.calls import Calls
    from kclient.cluster.view import Cluster
    from kclient.protocol.message import Request

BROKERS_CHOOSE = -1
"""On the wire: the number of partitions or replicas is up to the brokers (KIP-464)."""

DEFAULTS_SINCE = 4
"""CreateTopics version from which they can choose: Apache Kafka 2.4."""

IDS_SINCE = 6
"""DeleteTopics version that can name topics by id: Apache Kafka 2.8."""

TopicRef = str | bytes
"""A topic by its name, or by its id of 16 bytes."""
MAX_REPLICATION = 32_767
MAX_PARTITIONS = 2**31 - 1
ConfigValue = str | int | float | bool | None
"""A setting of a topic; None leaves the broker's default."""


class DefaultsNeeded(NoCommonVersion):
    """Error of a controller too old to choose numbers itself: they must be looked up and given."""


class _TopicsRequest(ControllerRequest):
    """Base of the requests in this file: what the controller says of a topic is final."""

    def node_for(self, key: TopicRef, calls: Calls) -> tuple[int, Hashable]:
        """The controller; topics by id go in a request of their own."""
        return calls.controller(), isinstance(key, bytes)

    def is_final(self, error: KafkaError) -> bool:
        """A topic that the controller doesn't know doesn't exist."""
        return isinstance(error, UnknownTopicOrPartition | UnknownTopicId)


class CreateTopics(_TopicsRequest):
    """Creates topics; the keys are their names."""

    what = "CreateTopics"
    api: type[Request] = CreateTopicsRequest

    def __init__(self, topics: Mapping[str, NewTopic], *, validate_only: bool) -> None:
        self._topics = topics
        self._validate_only = validate_only

    def build(
        self, keys: Sequence[str], version: int, view: Cluster, seconds: float
    ) -> CreateTopicsRequest:
        """The request for these names."""
        chosen = [self._topics[name] for name in keys]
        if version < DEFAULTS_SINCE and any(topic.needs_defaults for topic in chosen):
            raise DefaultsNeeded(
                f"CreateTopics version {version} needs partitions and replication_factor",
                hint="give both, or use Apache Kafka 2.4 or newer",
            )
        return CreateTopicsRequest(
            topics=[self._creatable(topic) for topic in chosen],
            timeout_ms=broker_timeout_ms(seconds),
            validate_only=self._validate_only,
        )

    @staticmethod
    def _creatable(topic: NewTopic) -> CreatableTopic:
        assigned = topic.assignments
        return CreatableTopic(
            name=topic.name,
            num_partitions=(topic.partitions if assigned is None else None) or BROKERS_CHOOSE,
            replication_factor=(
                (topic.replication_factor if assigned is None else None) or BROKERS_CHOOSE
            ),
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                for index, replicas in enumerate(assigned or ())
            ],
            configs=[
                CreatableTopicConfig(name=name, value=str(value))
                for name, value in topic.configs.items()
            ],
        )

    def read(
        self, response: CreateTopicsResponse, keys: Sequence[str]
    ) -> dict[str, CreatedTopic | KafkaError]:
        """Read the outcome of each topic."""
        found: dict[str, CreatedTopic | KafkaError] = {}
        for result in response.topics:
            if result.error_code:
                doing = f"creating topic {result.name} failed"
                found[result.name] = broker_error(
                    result.error_code, doing, broker_message=result.error_message
                )
            elif result.name in self._topics:
                found[result.name] = self._created(result)
        return found

    def _created(self, said: CreatableTopicResult) -> CreatedTopic:
        asked = self._topics[said.name]
        assigned = asked.assignments
        return CreatedTopic(
            said.name,
            topic_id=said.topic_id if said.topic_id != NO_TOPIC_ID else None,
            partitions=_reported(said.num_partitions, asked.partitions, assigned),
            replication_factor=_reported(
                said.replication_factor, asked.replication_factor, assigned and assigned[0]
            ),
            configs={config.name: config.value for config in said.configs or ()},
        )


def _reported(said: int, asked: int | None, assigned: Sequence[object] | None) -> int | None:
    if said > 0:
        return said
    return len(assigned) if assigned is not None else asked


class DeleteTopics(_TopicsRequest):
    """Deletes topics; the keys are names or ids."""

    what = "DeleteTopics"
    api: type[Request] = DeleteTopicsRequest

    def build(
        self, keys: Sequence[TopicRef], version: int, view: Cluster, seconds: float
    ) -> DeleteTopicsRequest:
        """The request for these topics, all by name or all by id."""
        names = [key for key in keys if isinstance(key, str)]
        ids = [key for key in keys if isinstance(key, bytes)]
        if ids and version < IDS_SINCE:
            raise NoCommonVersion(
                f"DeleteTopics version {version} can't name topics by id",
                hint="give names, or use Apache Kafka 2.8 or newer",
            )
        request = DeleteTopicsRequest(timeout_ms=broker_timeout_ms(seconds))
        if version >= IDS_SINCE:
            request.topics = [DeleteTopicState(name=name) for name in names]
            request.topics += [DeleteTopicState(name=None, topic_id=topic_id) for topic_id in ids]
        else:
            request.topic_names = names
        return request

    def read(
        self, response: DeleteTopicsResponse, keys: Sequence[TopicRef]
    ) -> dict[TopicRef, DeletedTopic | KafkaError]:
        """Read the outcome of each topic."""
        found: dict[TopicRef, DeletedTopic | KafkaError] = {}
        asked = set(keys)
        for result in response.responses:
            key: TopicRef = result.topic_id if result.topic_id in asked else result.name or ""
            if result.error_code:
                doing = f"deleting topic {name_of(key)} failed"
                found[key] = broker_error(
                    result.error_code, doing, broker_message=result.error_message
                )
            else:
                topic_id = result.topic_id if result.topic_id != NO_TOPIC_ID else None
                found[key] = DeletedTopic(result.name, topic_id)
        return found


class CreatePartitions(_TopicsRequest):
    """Gives topics more partitions; the keys are names.

    Args:
        totals: How many each topic shall have.
        assignments: Node ids of the replicas of each *added* partition, for some of the topics.
    """

    what = "CreatePartitions"
    api: type[Request] = CreatePartitionsRequest

    def __init__(
        self,
        totals: Mapping[str, int],
        assignments: Mapping[str, Sequence[Sequence[int]]],
        *,
        validate_only: bool,
    ) -> None:
        self._totals = totals
        self._assignments = assignments
        self._validate_only = validate_only

    def build(
        self, keys: Sequence[str], version: int, view: Cluster, seconds: float
    ) -> CreatePartitionsRequest:
        """The request for these names."""
        return CreatePartitionsRequest(
            topics=[self._topic(name) for name in keys],
            timeout_ms=broker_timeout_ms(seconds),
            validate_only=self._validate_only,
        )

    def _topic(self, name: str) -> CreatePartitionsTopic:
        assigned = self._assignments.get(name)
        return CreatePartitionsTopic(
            name=name,
            count=self._totals[name],
            assignments=(
                None
                if assigned is None
                else [CreatePartitionsAssignment(broker_ids=list(ids)) for ids in assigned]
            ),
        )

    def read(
        self, response: CreatePartitionsResponse, keys: Sequence[str]
    ) -> dict[str, int | KafkaError]:
        """Read the new total of each topic, or its error."""
        found: dict[str, int | KafkaError] = {}
        for result in response.results:
            if result.error_code:
                doing = f"adding partitions to topic {result.name} failed"
                found[result.name] = broker_error(
                    result.error_code, doing, broker_message=result.error_message
                )
            elif result.name in self._totals:
                found[result.name] = self._totals[result.name]
        return found


def name_of(ref: TopicRef) -> str:
    """A topic as errors name it."""
    return ref if isinstance(ref, str) else f"with id {ref.hex()}"


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    Attributes:
        name: 1 to 249 characters out of letters, digits, ``.``, ``_`` and ``-``.
        partitions: How many; None takes the brokers' default (``num.partitions``).
        replication_factor: Copies of each; None takes the brokers' default.
        configs: Settings of the topic by Kafka's names, such as ``{"retention.ms": 60_000}``.
            Numbers and booleans are written as Kafka writes them; None leaves a default.
        assignments: Instead of the two numbers: for each partition the node ids of its replicas,
            the preferred leader first.

    Raises:
        InvalidArgument: The name can't be a topic's, a number is out of range, or ``assignments``
            contradicts the numbers.
    """

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, ConfigValue] = field(default_factory=dict)
    assignments: Sequence[Sequence[int]] | None = None

    def __post_init__(self) -> None:
        check_topic_name(self.name, "name")
        _check_count("partitions", self.partitions, MAX_PARTITIONS)
        _check_count("replication_factor", self.replication_factor, MAX_REPLICATION)
        configs = MappingProxyType(dict(_checked_configs(self.configs)))
        object.__setattr__(self, "configs", configs)
        if self.assignments is not None:
            self._check_assignments(self.assignments)

    def _check_assignments(self, given: Sequence[Sequence[int]]) -> None:
        assignments = check_assignments("assignments", given)
        object.__setattr__(self, "assignments", assignments)
        if self.partitions not in (None, len(assignments)):
            raise InvalidArgument(
                f"partitions={self.partitions} of topic {self.name}, but assignments has "
                f"{len(assignments)}: give one of them"
            )
        if self.replication_factor not in (None, len(assignments[0])):
            raise InvalidArgument(
                f"replication_factor={self.replication_factor} of topic {self.name}, but "
                f"assignments has {len(assignments[0])} replicas: give one of them"
            )

    def __reduce__(self) -> tuple[object, ...]:
        # A mapping proxy can't be pickled.
        return NewTopic, (
            self.name,
            self.partitions,
            self.replication_factor,
            dict(self.configs),
            self.assignments,
        )

    @property
    def needs_defaults(self) -> bool:
        """The brokers must choose a number, which they can from CreateTopics version 4 on."""
        missing = self.partitions is None or self.replication_factor is None
        return missing and self.assignments is None

    def with_defaults(self, partitions: int, replication_factor: int) -> NewTopic:
        """The same topic with these numbers where it leaves them open."""
        return replace(
            self,
            partitions=partitions if self.partitions is None else self.partitions,
            replication_factor=(
                replication_factor if self.replication_factor is None else self.replication_factor
            ),
        )


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was created, or with ``validate_only`` could be.

    Attributes:
        name: Its name.
        topic_id: Its id of 16 bytes; None where the brokers don't report it (before 2.8).
        partitions: How many it has; None where it wasn't given and brokers (before 2.4) don't
            report it.
        replication_factor: Likewise.
        configs: All settings that it has, by name; empty where the brokers don't report them.
    """

    name: str
    topic_id: bytes | None = None
    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """A topic that was deleted.

    Attributes:
        name: Its name; None where it was deleted by id and may not be named to this client.
        topic_id: Its id of 16 bytes; None where the brokers don't report it (before 2.8).
    """

    name: str | None
    topic_id: bytes | None = None


def check_assignments(argument: str, given: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Replicas per partition as tuples, or InvalidArgument that names ``argument``."""
    try:
        assignments = tuple(tuple(replicas) for replicas in given)
    except TypeError:
        raise InvalidArgument(f"{argument} must be a list of lists of node ids") from None
    if not assignments:
        raise InvalidArgument(f"{argument} is empty: give the node ids of at least one partition")
    for index, replicas in enumerate(assignments):
        if not all(_is_node_id(node) for node in replicas):
            raise InvalidArgument(
                f"{argument}[{index}]={list(replicas)!r}: node ids are ints from 0"
            )
        if not replicas or len(set(replicas)) != len(replicas):
            raise InvalidArgument(
                f"{argument}[{index}]={list(replicas)!r}: give at least one node id, each once"
            )
        if len(replicas) != len(assignments[0]):
            raise InvalidArgument(
                f"{argument}[{index}] has {len(replicas)} replicas and {argument}[0] "
                f"{len(assignments[0])}: all partitions must have equally many"
            )
    return assignments


def _is_node_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _check_count(argument: str, value: int | None, maximum: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= maximum:
        raise InvalidArgument(
            f"{argument}={value!r}: allowed is an int from 1 to {maximum:,}, or None for the "
            "brokers' default"
        )


def _checked_configs(configs: object) -> Iterable[tuple[str, str]]:
    if not isinstance(configs, Mapping):
        raise InvalidArgument(f"configs must be a mapping, not {type(configs).__name__}")
    for name, value in configs.items():
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"configs has the name {name!r}: names are str")
        if value is None:
            continue
        if isinstance(value, bool):
            yield name, "true" if value else "false"
        elif isinstance(value, str | int | float):
            yield name, str(value)
        else:
            raise InvalidArgument(
                f"configs[{name!r}]={value!r}: allowed are str, int, float, bool and None"
            )
