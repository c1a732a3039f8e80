"""An asyncio client SDK for Apache Kafka. The public names, and nothing else.

Each name is imported from its room on first use, so that ``import kclient`` stays cheap. In a
service, ``from kclient import Producer`` at module level keeps that off the event loop.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kclient import errors as errors
    from kclient import serializers as serializers
    from kclient import testing as testing
    from kclient.admin import Admin as Admin
    from kclient.admin import ClusterDescription as ClusterDescription
    from kclient.admin import CreatedTopic as CreatedTopic
    from kclient.admin import DeletedTopic as DeletedTopic
    from kclient.admin import NewTopic as NewTopic
    from kclient.admin import TopicDescription as TopicDescription
    from kclient.admin import TopicListing as TopicListing
    from kclient.config import AdminConfig as AdminConfig
    from kclient.config import ConsumerConfig as ConsumerConfig
    from kclient.config import GroupMemberConfig as GroupMemberConfig
    from kclient.config import ProducerConfig as ProducerConfig
    from kclient.consumer import Consumer as Consumer
    from kclient.consumer import ConsumerRecord as ConsumerRecord
    from kclient.consumer import DeadLetters as DeadLetters
    from kclient.consumer.running.dead_letters import failure_of as failure_of
    from kclient.consumer.running.retries import Retries as Retries
    from kclient.consumer.running.retries import RetryTopic as RetryTopic
    from kclient.errors import BrokerError as BrokerError
    from kclient.errors import KafkaError as KafkaError
    from kclient.group.group_member import GroupMember as GroupMember
    from kclient.group.host import JoinedMember as JoinedMember
    from kclient.group.user_protocol import GroupAssignment as GroupAssignment
    from kclient.group.user_protocol import GroupProtocol as GroupProtocol
    from kclient.producer import Delivery as Delivery
    from kclient.producer import Outgoing as Outgoing
    from kclient.producer import Producer as Producer
    from kclient.record import Record as Record
    from kclient.security import Security as Security
    from kclient.types import IsolationLevel as IsolationLevel
    from kclient.types import OffsetAndMetadata as OffsetAndMetadata
    from kclient.types import OffsetAndTimestamp as OffsetAndTimestamp
    from kclient.types import OffsetSpec as OffsetSpec
    from kclient.types import RecordMetadata as RecordMetadata
    from kclient.types import TimestampType as TimestampType
    from kclient.types import TopicPartition as TopicPartition

__version__ = "0.1.0"

_HOME = {
    "Admin": "kclient.admin",
    "AdminConfig": "kclient.config",
    "BrokerError": "kclient.errors",
    "ClusterDescription": "kclient.admin",
    "Consumer": "kclient.consumer",
    "ConsumerConfig": "kclient.config",
    "ConsumerRecord": "kclient.consumer",
    "CreatedTopic": "kclient.admin",
    "DeadLetters": "kclient.consumer",
    "DeletedTopic": "kclient.admin",
    "Delivery": "kclient.producer",
    "GroupAssignment": "kclient.group.user_protocol",
    "GroupMember": "kclient.group.group_member",
    "GroupMemberConfig": "kclient.config",
    "GroupProtocol": "kclient.group.user_protocol",
    "IsolationLevel": "kclient.types",
    "JoinedMember": "kclient.group.host",
    "KafkaError": "kclient.errors",
    "NewTopic": "kclient.admin",
    "OffsetAndMetadata": "kclient.types",
    "OffsetAndTimestamp": "kclient.types",
    "OffsetSpec": "kclient.types",
    "Outgoing": "kclient.producer",
    "Producer": "kclient.producer",
    "ProducerConfig": "kclient.config",
    "Record": "kclient.record",
    "RecordMetadata": "kclient.types",
    "Retries": "kclient.consumer.running.retries",
    "RetryTopic": "kclient.consumer.running.retries",
    "Security": "kclient.security",
    "TimestampType": "kclient.types",
    "TopicDescription": "kclient.admin",
    "TopicListing": "kclient.admin",
    "TopicPartition": "kclient.types",
    "failure_of": "kclient.consumer.running.dead_letters",
}
_MODULES = ("errors", "serializers", "testing")

__all__ = [
    "Admin",
    "AdminConfig",
    "BrokerError",
    "ClusterDescription",
    "Consumer",
    "ConsumerConfig",
    "ConsumerRecord",
    "CreatedTopic",
    "DeadLetters",
    "DeletedTopic",
    "Delivery",
    "GroupAssignment",
    "GroupMember",
    "GroupMemberConfig",
    "GroupProtocol",
    "IsolationLevel",
    "JoinedMember",
    "KafkaError",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetSpec",
    "Outgoing",
    "Producer",
    "ProducerConfig",
    "Record",
    "RecordMetadata",
    "Retries",
    "RetryTopic",
    "Security",
    "TimestampType",
    "TopicDescription",
    "TopicListing",
    "TopicPartition",
    "__version__",
    "errors",
    "failure_of",
    "serializers",
    "testing",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif name in _MODULES:
        value = import_module(f"kclient.{name}")
    else:
        raise AttributeError(f"module 'kclient' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
