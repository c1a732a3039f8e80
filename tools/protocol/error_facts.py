"""What Kafka's own error table lacks: which errors end a client, and what to do about them.

``errors`` joins these with the table that Java prints. Names are Kafka's; the generator refuses a
name that Kafka doesn't have.
"""

from __future__ import annotations

FATAL = {
    # The object that got one of these can't go on, whatever it was doing: another instance took
    # its identity, or the broker rejects its credentials. Not here, since it depends on the
    # call: INVALID_PRODUCER_EPOCH (Produce: abort and go on; coordinator: fenced),
    # UNSUPPORTED_VERSION, *_AUTHORIZATION_FAILED of a topic, group or cluster, and
    # OUT_OF_ORDER_SEQUENCE_NUMBER (an epoch bump repairs it).
    "UNSUPPORTED_SASL_MECHANISM",
    "ILLEGAL_SASL_STATE",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "SASL_AUTHENTICATION_FAILED",
    "FENCED_INSTANCE_ID",
    "PRODUCER_FENCED",
}

REDISCOVER_COORDINATOR = {"COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}
"""After these, Java's clients forget the coordinator and look for it again."""

CLASS_NAMES = {
    "REQUEST_TIMED_OUT": "BrokerTimedOut",
    "INVALID_CONFIG": "BrokerInvalidConfig",
}
"""Classes whose plain name would be taken for one of the client's own errors."""

HINTS = {
    "OFFSET_OUT_OF_RANGE": "seek to an offset that exists, or set auto_offset_reset",
    "UNKNOWN_TOPIC_OR_PARTITION": (
        "check the topic's name and that it exists; "
        "without the right to describe a topic it looks as if it did not exist"
    ),
    "MESSAGE_TOO_LARGE": "send less in a record, or raise max.message.bytes on the topic",
    "RECORD_LIST_TOO_LARGE": "lower batch_size, or raise segment.bytes on the topic",
    "OFFSET_METADATA_TOO_LARGE": "shorten the metadata of the commit",
    "INVALID_TOPIC_EXCEPTION": (
        "topic names have 1 to 249 characters out of letters, digits, '.', '_' and '-'"
    ),
    "NOT_ENOUGH_REPLICAS": (
        "fewer replicas are in sync than min.insync.replicas asks for: bring brokers back, "
        "or lower it"
    ),
    "INVALID_REQUIRED_ACKS": "acks is 0, 1 or all",
    "INCONSISTENT_GROUP_PROTOCOL": (
        "all members of a group must share a protocol type and at least one assignor"
    ),
    "INVALID_SESSION_TIMEOUT": (
        "choose a session_timeout between the broker's group.min.session.timeout.ms and "
        "group.max.session.timeout.ms"
    ),
    "TOPIC_AUTHORIZATION_FAILED": "grant the principal an ACL on the topic for this operation",
    "GROUP_AUTHORIZATION_FAILED": "grant the principal READ on the group",
    "CLUSTER_AUTHORIZATION_FAILED": "grant the principal an ACL on the cluster for this operation",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "grant the principal WRITE on the transactional id",
    "INVALID_TIMESTAMP": (
        "see the topic's message.timestamp.before.max.ms and message.timestamp.after.max.ms"
    ),
    "UNSUPPORTED_SASL_MECHANISM": "pick one of the mechanisms that the listener offers",
    "SASL_AUTHENTICATION_FAILED": "check user name, password or token, and the mechanism",
    "ILLEGAL_SASL_STATE": "the listener may not expect SASL at all: check the port",
    "TOPIC_ALREADY_EXISTS": "use another name, or go on with that topic",
    "INVALID_PARTITIONS": "ask for at least one partition, and for more than there are",
    "INVALID_REPLICATION_FACTOR": "ask for no more replicas than there are brokers",
    "POLICY_VIOLATION": "the cluster's own policy refused it; the broker's text says why",
    "INVALID_PRODUCER_EPOCH": (
        "another producer with the same transactional_id may have taken over, or the transaction "
        "was open for longer than transaction_timeout"
    ),
    "INVALID_TXN_STATE": (
        "the coordinator has ended the transaction, for another process or after "
        "transaction_timeout: make a new producer"
    ),
    "PRODUCER_FENCED": (
        "another producer with the same transactional_id took over: give each running "
        "producer its own; or its transaction was open for longer than transaction_timeout"
    ),
    "FENCED_INSTANCE_ID": (
        "another member uses the same group_instance_id: give each running member its own"
    ),
    "INVALID_TRANSACTION_TIMEOUT": (
        "lower transaction_timeout, which is in seconds, below the broker's "
        "transaction.max.timeout.ms"
    ),
    "SECURITY_DISABLED": "set authorizer.class.name on the brokers",
    "DELEGATION_TOKEN_AUTH_DISABLED": "set delegation.token.secret.key on the brokers",
    "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED": (
        "log in by SASL with a password, or connect with a client's certificate"
    ),
    "NON_EMPTY_GROUP": "stop the group's members first",
    "TOPIC_DELETION_DISABLED": "set delete.topic.enable=true on the brokers",
    "UNSUPPORTED_COMPRESSION_TYPE": "a zstd topic needs a client that speaks Fetch version 10",
    "GROUP_MAX_SIZE_REACHED": "raise group.max.size on the brokers, or start fewer members",
    "INVALID_RECORD": "a compacted topic takes no record without a key",
    "THROTTLING_QUOTA_EXCEEDED": "a quota of the cluster limits this; try again more slowly",
    "UNRELEASED_INSTANCE_ID": "the earlier member with this group_instance_id must leave first",
    "UNSUPPORTED_ASSIGNOR": "use one of the assignors in group.consumer.assignors of the brokers",
    "UNSUPPORTED_FOR_MESSAGE_FORMAT": "the topic's message format is too old for this",
    "INVALID_REGULAR_EXPRESSION": "the broker takes RE2 syntax",
    "TRANSACTION_ABORTABLE": "abort the transaction and begin a new one",
    "UNSUPPORTED_VERSION": "the broker is too old for this, or one of its features is switched off",
}
"""What a user can do, for the errors that reach users."""
