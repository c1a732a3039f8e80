"""An asyncio client SDK for Apache Kafka. The public names, and nothing else.

Each name is imported from its package on first use, so that ``import kclient`` stays cheap. In a
service, ``from kclient import Producer`` at module level keeps that off the event loop.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_NAMES = {
    "kclient.admin": (
        *("Admin", "ClusterDescription", "CreatedTopic", "DeletedTopic", "NewTopic"),
        *("TopicDescription", "TopicListing"),
    ),
    "kclient.admin.acls": ("AclBinding", "AclFilter"),
    "kclient.admin.delegation_tokens": ("DelegationToken",),
    "kclient.admin.quotas": ("QuotaEntity",),
    "kclient.admin.users": ("ScramDeletion", "ScramUpsertion"),
    "kclient.config": ("AdminConfig", "ConsumerConfig", "GroupMemberConfig", "ProducerConfig"),
    "kclient.consumer": ("Consumer", "ConsumerRecord", "DeadLetters"),
    "kclient.consumer.dead_letters": ("Failure", "failure_of"),
    "kclient.consumer.handlers.retries": ("Retries", "RetryTopic"),
    "kclient.credentials": ("Token",),
    "kclient.errors": (
        *("AuthenticationFailed", "BackgroundTaskDied", "BootstrapFailed", "BrokerError"),
        *("BrokerInvalidConfig", "BrokerUnreachable", "BufferFull", "ClientClosed", "ClientError"),
        *("ClusterAuthorizationFailed", "CodecUnavailable", "CommitFailed", "CommitOutcomeUnknown"),
        *("ConnectionLost", "ConsumerStalled", "CorruptRecord", "DecompressionFailed"),
        *("DelegationTokenAuthDisabled", "DelegationTokenAuthorizationFailed"),
        *("DelegationTokenExpired", "DelegationTokenNotFound", "DelegationTokenOwnerMismatch"),
        *("DelegationTokenRequestNotAllowed", "DeliveryTimedOut", "DeserializationFailed"),
        *("FencedInstanceId", "FlushFailed", "GroupAuthorizationFailed", "GroupMaxSizeReached"),
        *("HandlerFailed", "IllegalGeneration", "InconsistentGroupProtocol", "InvalidArgument"),
        *("InvalidConfig", "InvalidFrame", "InvalidPartitions", "InvalidPrincipalType"),
        *("InvalidProducerEpoch", "InvalidProducerIdMapping", "InvalidReplicaAssignment"),
        *("InvalidReplicationFactor", "InvalidRequest", "InvalidSessionTimeout", "InvalidTopic"),
        *("InvalidTransactionTimeout", "InvalidTxnState", "KafkaError", "LeaderNotAvailable"),
        *("LogTruncated", "MaxPollExceeded", "MetadataTimedOut", "NoCommonVersion", "NoPosition"),
        *("OffsetError", "OffsetOutOfRange", "PolicyViolation", "ProducerFenced", "ProtocolError"),
        *("RecordTooLarge", "RequestTimedOut", "ResourceNotFound", "RowsNotDelivered"),
        *("RowsRejected", "SecurityDisabled", "SerializationFailed", "TopicAlreadyExists"),
        *("TopicAuthorizationFailed", "TopicDeletionDisabled", "TransactionAbortable"),
        *("TransactionAborted", "TransactionalIdAuthorizationFailed", "UnacceptableCredential"),
        *("UnknownMemberId", "UnknownTopicId", "UnknownTopicOrPartition", "WrongContext"),
        "WrongTransactionState",
    ),
    "kclient.group.group_member": ("GroupMember",),
    "kclient.group.member": ("JoinedMember",),
    "kclient.group.user_protocol": ("GroupAssignment", "GroupProtocol"),
    "kclient.oidc": ("ClientCredentials", "JwtBearer", "TokenFile"),
    "kclient.process": ("process",),
    "kclient.producer": ("Delivery", "Outgoing", "Producer"),
    "kclient.producer.transaction_manager": ("Transaction",),
    "kclient.record": ("Record",),
    "kclient.secret": ("Secret",),
    "kclient.security": ("Security",),
    "kclient.types": (
        *("GroupMetadata", "IsolationLevel", "OffsetAndMetadata", "OffsetAndTimestamp"),
        *("OffsetSpec", "PreparedTransaction", "RecordMetadata", "TimestampType"),
        "TopicPartition",
    ),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}
_MODULES = ("errors", "partitioners", "serializers", "testing")

if TYPE_CHECKING:
    from kclient import errors as errors
    from kclient import partitioners as partitioners
    from kclient import serializers as serializers
    from kclient import testing as testing
    from kclient.admin import Admin as Admin
    from kclient.admin import ClusterDescription as ClusterDescription
    from kclient.admin import CreatedTopic as CreatedTopic
    from kclient.admin import DeletedTopic as DeletedTopic
    from kclient.admin import NewTopic as NewTopic
    from kclient.admin import TopicDescription as TopicDescription
    from kclient.admin import TopicListing as TopicListing
    from kclient.admin.acls import AclBinding as AclBinding
    from kclient.admin.acls import AclFilter as AclFilter
    from kclient.admin.delegation_tokens import DelegationToken as DelegationToken
    from kclient.admin.quotas import QuotaEntity as QuotaEntity
    from kclient.admin.users import ScramDeletion as ScramDeletion
    from kclient.admin.users import ScramUpsertion as ScramUpsertion
    from kclient.config import AdminConfig as AdminConfig
    from kclient.config import ConsumerConfig as ConsumerConfig
    from kclient.config import GroupMemberConfig as GroupMemberConfig
    from kclient.config import ProducerConfig as ProducerConfig
    from kclient.consumer import Consumer as Consumer
    from kclient.consumer import ConsumerRecord as ConsumerRecord
    from kclient.consumer import DeadLetters as DeadLetters
    from kclient.consumer.dead_letters import Failure as Failure
    from kclient.consumer.dead_letters import failure_of as failure_of
    from kclient.consumer.handlers.retries import Retries as Retries
    from kclient.consumer.handlers.retries import RetryTopic as RetryTopic
    from kclient.credentials import Token as Token
    from kclient.errors import AuthenticationFailed as AuthenticationFailed
    from kclient.errors import BackgroundTaskDied as BackgroundTaskDied
    from kclient.errors import BootstrapFailed as BootstrapFailed
    from kclient.errors import BrokerError as BrokerError
    from kclient.errors import BrokerInvalidConfig as BrokerInvalidConfig
    from kclient.errors import BrokerUnreachable as BrokerUnreachable
    from kclient.errors import BufferFull as BufferFull
    from kclient.errors import ClientClosed as ClientClosed
    from kclient.errors import ClientError as ClientError
    from kclient.errors import ClusterAuthorizationFailed as ClusterAuthorizationFailed
    from kclient.errors import CodecUnavailable as CodecUnavailable
    from kclient.errors import CommitFailed as CommitFailed
    from kclient.errors import CommitOutcomeUnknown as CommitOutcomeUnknown
    from kclient.errors import ConnectionLost as ConnectionLost
    from kclient.errors import ConsumerStalled as ConsumerStalled
    from kclient.errors import CorruptRecord as CorruptRecord
    from kclient.errors import DecompressionFailed as DecompressionFailed
    from kclient.errors import DelegationTokenAuthDisabled as DelegationTokenAuthDisabled
    from kclient.errors import (
        DelegationTokenAuthorizationFailed as DelegationTokenAuthorizationFailed,
    )
    from kclient.errors import DelegationTokenExpired as DelegationTokenExpired
    from kclient.errors import DelegationTokenNotFound as DelegationTokenNotFound
    from kclient.errors import DelegationTokenOwnerMismatch as DelegationTokenOwnerMismatch
    from kclient.errors import DelegationTokenRequestNotAllowed as DelegationTokenRequestNotAllowed
    from kclient.errors import DeliveryTimedOut as DeliveryTimedOut
    from kclient.errors import DeserializationFailed as DeserializationFailed
    from kclient.errors import FencedInstanceId as FencedInstanceId
    from kclient.errors import FlushFailed as FlushFailed
    from kclient.errors import GroupAuthorizationFailed as GroupAuthorizationFailed
    from kclient.errors import GroupMaxSizeReached as GroupMaxSizeReached
    from kclient.errors import HandlerFailed as HandlerFailed
    from kclient.errors import IllegalGeneration as IllegalGeneration
    from kclient.errors import InconsistentGroupProtocol as InconsistentGroupProtocol
    from kclient.errors import InvalidArgument as InvalidArgument
    from kclient.errors import InvalidConfig as InvalidConfig
    from kclient.errors import InvalidFrame as InvalidFrame
    from kclient.errors import InvalidPartitions as InvalidPartitions
    from kclient.errors import InvalidPrincipalType as InvalidPrincipalType
    from kclient.errors import InvalidProducerEpoch as InvalidProducerEpoch
    from kclient.errors import InvalidProducerIdMapping as InvalidProducerIdMapping
    from kclient.errors import InvalidReplicaAssignment as InvalidReplicaAssignment
    from kclient.errors import InvalidReplicationFactor as InvalidReplicationFactor
    from kclient.errors import InvalidRequest as InvalidRequest
    from kclient.errors import InvalidSessionTimeout as InvalidSessionTimeout
    from kclient.errors import InvalidTopic as InvalidTopic
    from kclient.errors import InvalidTransactionTimeout as InvalidTransactionTimeout
    from kclient.errors import InvalidTxnState as InvalidTxnState
    from kclient.errors import KafkaError as KafkaError
    from kclient.errors import LeaderNotAvailable as LeaderNotAvailable
    from kclient.errors import LogTruncated as LogTruncated
    from kclient.errors import MaxPollExceeded as MaxPollExceeded
    from kclient.errors import MetadataTimedOut as MetadataTimedOut
    from kclient.errors import NoCommonVersion as NoCommonVersion
    from kclient.errors import NoPosition as NoPosition
    from kclient.errors import OffsetError as OffsetError
    from kclient.errors import OffsetOutOfRange as OffsetOutOfRange
    from kclient.errors import PolicyViolation as PolicyViolation
    from kclient.errors import ProducerFenced as ProducerFenced
    from kclient.errors import ProtocolError as ProtocolError
    from kclient.errors import RecordTooLarge as RecordTooLarge
    from kclient.errors import RequestTimedOut as RequestTimedOut
    from kclient.errors import ResourceNotFound as ResourceNotFound
    from kclient.errors import RowsNotDelivered as RowsNotDelivered
    from kclient.errors import RowsRejected as RowsRejected
    from kclient.errors import SecurityDisabled as SecurityDisabled
    from kclient.errors import SerializationFailed as SerializationFailed
    from kclient.errors import TopicAlreadyExists as TopicAlreadyExists
    from kclient.errors import TopicAuthorizationFailed as TopicAuthorizationFailed
    from kclient.errors import TopicDeletionDisabled as TopicDeletionDisabled
    from kclient.errors import TransactionAbortable as TransactionAbortable
    from kclient.errors import TransactionAborted as TransactionAborted
    from kclient.errors import (
        TransactionalIdAuthorizationFailed as TransactionalIdAuthorizationFailed,
    )
    from kclient.errors import UnacceptableCredential as UnacceptableCredential
    from kclient.errors import UnknownMemberId as UnknownMemberId
    from kclient.errors import UnknownTopicId as UnknownTopicId
    from kclient.errors import UnknownTopicOrPartition as UnknownTopicOrPartition
    from kclient.errors import WrongContext as WrongContext
    from kclient.errors import WrongTransactionState as WrongTransactionState
    from kclient.group.group_member import GroupMember as GroupMember
    from kclient.group.member import JoinedMember as JoinedMember
    from kclient.group.user_protocol import GroupAssignment as GroupAssignment
    from kclient.group.user_protocol import GroupProtocol as GroupProtocol
    from kclient.oidc import ClientCredentials as ClientCredentials
    from kclient.oidc import JwtBearer as JwtBearer
    from kclient.oidc import TokenFile as TokenFile
    from kclient.process import process as process
    from kclient.producer import Delivery as Delivery
    from kclient.producer import Outgoing as Outgoing
    from kclient.producer import Producer as Producer
    from kclient.producer.transaction_manager import Transaction as Transaction
    from kclient.record import Record as Record
    from kclient.secret import Secret as Secret
    from kclient.security import Security as Security
    from kclient.types import GroupMetadata as GroupMetadata
    from kclient.types import IsolationLevel as IsolationLevel
    from kclient.types import OffsetAndMetadata as OffsetAndMetadata
    from kclient.types import OffsetAndTimestamp as OffsetAndTimestamp
    from kclient.types import OffsetSpec as OffsetSpec
    from kclient.types import PreparedTransaction as PreparedTransaction
    from kclient.types import RecordMetadata as RecordMetadata
    from kclient.types import TimestampType as TimestampType
    from kclient.types import TopicPartition as TopicPartition
else:  # which type checkers don't see, so that they know a wrong name
    __all__ = sorted([*_HOME, *_MODULES, "__version__"])

    def __dir__() -> list[str]:
        return list(__all__)

    def __getattr__(name: str) -> Any:
        """Import a public name on its first use."""
        if name in _HOME:
            value = getattr(import_module(_HOME[name]), name)
        elif name in _MODULES:
            value = import_module(f"kclient.{name}")
        else:
            raise AttributeError(f"module 'kclient' has no attribute {name!r}")
        globals()[name] = value
        return value
