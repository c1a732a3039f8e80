"""Settings of other clients, and what each of them is here. Sans-IO.

One sorted table of the settings of aiokafka, kafka-python, confluent-kafka (librdkafka) and Java's
clients, in lower case with underscores in place of dots. Errors about unknown names, the reader of
properties and docs/migrating.md go by it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from kclient.durations import IN_SECONDS


class Counterpart(NamedTuple):
    """What a setting of another client is here.

    Attributes:
        ours: Our setting, or argument of a client's constructor; None where there is none.
        note: How to give it, or why it isn't needed.
    """

    ours: str | None
    note: str = ""


_OIDC = "Security.oauth(ClientCredentials(...)), JwtBearer(...) or a function"
_SASL = "Security.sasl_plain(...), .sasl_scram(...), .oauth(...) or .gssapi(...)"
_METRICS = "metrics() returns all counters"
_VERSIONS = "versions are negotiated with each broker"
_DELIVERY = "send() returns a Delivery; await it for the outcome"
_PLUG_INS = "observers= and the (de)serializers are what can be plugged in"
_NOTHING = "it has no effect on a client"
_FUTURE = "commit_nowait() returns a future"
_PARTITIONER = "an object with partition(); the default is Java's"
_OFFSETS = "offsets are committed to the group"

TABLE: dict[str, Counterpart] = {
    "acks": Counterpart("acks"),
    "allow_auto_create_topics": Counterpart("allow_auto_create_topics"),
    "api_version": Counterpart(None, _VERSIONS),
    "api_version_*": Counterpart(None, _VERSIONS),
    "auto_commit_enable": Counterpart("enable_auto_commit"),
    "auto_commit_interval_ms": Counterpart("auto_commit_interval"),
    "auto_include_jmx_reporter": Counterpart(None, _METRICS),
    "auto_offset_reset": Counterpart("auto_offset_reset"),
    "background_event_cb": Counterpart("observers"),
    "batch_num_messages": Counterpart(None, "batch_size bounds a batch, in bytes"),
    "batch_size": Counterpart("batch_size"),
    "bootstrap_controllers": Counterpart(None, "brokers are asked: bootstrap"),
    "bootstrap_servers": Counterpart("bootstrap", "the first argument of every client"),
    "bootstrap_timeout_ms": Counterpart("bootstrap_timeout"),
    "broker_address_family": Counterpart(None, "each address of a name is tried"),
    "broker_address_ttl": Counterpart(None, "names are resolved for each connection"),
    "broker_version_fallback": Counterpart(None, _VERSIONS),
    "buffer_memory": Counterpart("buffer_memory"),
    "builtin_features": Counterpart(None, "it can't be set"),
    "check_crcs": Counterpart("check_crcs"),
    "client_dns_lookup": Counterpart(None, "each address of a name is tried"),
    "client_id": Counterpart("client_id"),
    "client_rack": Counterpart("client_rack"),
    "closesocket_cb": Counterpart("dialer"),
    "compression_codec": Counterpart("compression"),
    "compression_gzip_level": Counterpart("compression_level"),
    "compression_level": Counterpart("compression_level"),
    "compression_lz4_level": Counterpart("compression_level"),
    "compression_type": Counterpart("compression"),
    "compression_zstd_level": Counterpart("compression_level"),
    "config_providers": Counterpart(None, "values are taken literally"),
    "connect_cb": Counterpart("dialer"),
    "connections_max_idle_ms": Counterpart("connections_max_idle"),
    "consume_callback_max_messages": Counterpart(None, "poll(max_records=) bounds each call"),
    "consume_cb": Counterpart(None, "run(handler) calls a handler"),
    "consumer_timeout_ms": Counterpart(None, "poll(timeout=) bounds each wait, in seconds"),
    "coordinator_query_interval_ms": Counterpart(None, "the coordinator is looked up when needed"),
    "debug": Counterpart(None, 'logging.getLogger("kclient").setLevel("DEBUG")'),
    "default_api_timeout_ms": Counterpart("api_timeout"),
    "default_list_*": Counterpart(None, "there are no serializers of lists"),
    "default_offset_commit_callback": Counterpart(None, _FUTURE),
    "default_topic_conf": Counterpart(None, "give its settings to the client"),
    "delivery_report_only_error": Counterpart(None, _DELIVERY),
    "delivery_timeout_ms": Counterpart("delivery_timeout"),
    "dr_cb": Counterpart(None, _DELIVERY),
    "dr_msg_cb": Counterpart(None, _DELIVERY),
    "enable_auto_commit": Counterpart("enable_auto_commit"),
    "enable_auto_offset_store": Counterpart(
        None, "what was handed over before the latest call is committed; or commit(record)"
    ),
    "enable_gapless_guarantee": Counterpart(
        None, "a batch that fails does not let later ones overtake it"
    ),
    "enable_idempotence": Counterpart("idempotence"),
    "enable_incremental_fetch_sessions": Counterpart(None, "always used where brokers have them"),
    "enable_metrics_push": Counterpart(None, "there is no telemetry"),
    "enable_partition_eof": Counterpart(
        None, "the end is where consumer.lag(partition) is 0; it is None until known"
    ),
    "enable_random_seed": Counterpart(None, _NOTHING),
    "enable_sasl_oauthbearer_unsecure_jwt": Counterpart(
        None, "tokens of your own making: Security.oauth(token) takes a function"
    ),
    "enable_ssl_certificate_verification": Counterpart(
        "security", "certificates are always verified by Security.tls()"
    ),
    "enabled_events": Counterpart("observers"),
    "error_cb": Counterpart("observers"),
    "exclude_internal_topics": Counterpart("exclude_internal_topics"),
    "fetch_error_backoff_ms": Counterpart("retry_backoff"),
    "fetch_max_bytes": Counterpart("fetch_max_bytes"),
    "fetch_max_wait_ms": Counterpart("fetch_max_wait"),
    "fetch_message_max_bytes": Counterpart("max_partition_fetch_bytes"),
    "fetch_min_bytes": Counterpart("fetch_min_bytes"),
    "fetch_queue_backoff_ms": Counterpart(None, "buffer_memory bounds what is fetched ahead"),
    "fetch_wait_max_ms": Counterpart("fetch_max_wait"),
    "group_id": Counterpart("group", "an argument of its own, group='audit'"),
    "group_instance_id": Counterpart("group_instance_id"),
    "group_protocol": Counterpart("group_protocol"),
    "group_protocol_type": Counterpart(None, "a GroupMember's protocol has its type"),
    "group_remote_assignor": Counterpart(
        None, "the classic protocol has partition_assignment_strategy"
    ),
    "heartbeat_interval_ms": Counterpart("heartbeat_interval"),
    "https_ca_*": Counterpart("security", "ca_file= of ClientCredentials(...) or JwtBearer(...)"),
    "interceptor_classes": Counterpart(None, _PLUG_INS),
    "interceptors": Counterpart(None, _PLUG_INS),
    "internal_termination_signal": Counterpart(None, "there are no threads to end"),
    "isolation_level": Counterpart("isolation_level"),
    "kafka_client": Counterpart("dialer"),
    "key_deserializer": Counterpart("key_deserializer", "a callable(topic, data)"),
    "key_serializer": Counterpart("key_serializer", "a callable(topic, data)"),
    "linger_ms": Counterpart("linger"),
    "log_*": Counterpart(None, 'it logs to logging.getLogger("kclient")'),
    "logger": Counterpart(None, 'it logs to logging.getLogger("kclient")'),
    "loop": Counterpart(None, "a client uses the event loop that it is started in"),
    "max_batch_size": Counterpart("batch_size"),
    "max_block_ms": Counterpart("max_block"),
    "max_in_flight": Counterpart("max_in_flight"),
    "max_in_flight_requests_per_connection": Counterpart("max_in_flight"),
    "max_partition_fetch_bytes": Counterpart("max_partition_fetch_bytes"),
    "max_poll_interval_ms": Counterpart("max_poll_interval"),
    "max_poll_records": Counterpart("max_poll_records"),
    "max_request_size": Counterpart("max_request_size"),
    "message_copy_max_bytes": Counterpart(None, _NOTHING),
    "message_max_bytes": Counterpart("max_request_size"),
    "message_send_max_retries": Counterpart(None, "delivery_timeout bounds retries"),
    "message_timeout_ms": Counterpart("delivery_timeout"),
    "metadata_broker_list": Counterpart("bootstrap", "the first argument of every client"),
    "metadata_max_age_ms": Counterpart("metadata_max_age"),
    "metadata_max_idle_ms": Counterpart("metadata_max_idle"),
    "metadata_recovery_rebootstrap_trigger_ms": Counterpart(
        "metadata_recovery_rebootstrap_trigger"
    ),
    "metadata_recovery_strategy": Counterpart(
        None, "metadata_recovery_rebootstrap_trigger=math.inf switches it off"
    ),
    "metric_group_prefix": Counterpart(None, _METRICS),
    "metric_reporters": Counterpart(None, _METRICS),
    "metrics_*": Counterpart(None, _METRICS),
    "msg_order_cmp": Counterpart(None, "records of a partition are in order"),
    "oauthbearer_token_refresh_cb": Counterpart("security", "Security.oauth(token)"),
    "offset_commit_cb": Counterpart(None, _FUTURE),
    "offset_store_*": Counterpart(None, _OFFSETS),
    "on_commit": Counterpart(None, _FUTURE),
    "on_delivery": Counterpart(None, _DELIVERY),
    "opaque": Counterpart(None, "send() returns a Delivery of its own for each record"),
    "open_cb": Counterpart(None, "no file is written"),
    "partition_assignment_strategy": Counterpart("partition_assignment_strategy"),
    "partitioner": Counterpart("partitioner", _PARTITIONER),
    "partitioner_*": Counterpart(None, "the default partitioner is Java's, without these"),
    "partitioner_cb": Counterpart("partitioner", _PARTITIONER),
    "partitioner_class": Counterpart("partitioner", _PARTITIONER),
    "plugin_library_paths": Counterpart(None, _PLUG_INS),
    "produce_offset_report": Counterpart(None, "await a Delivery for its offset"),
    "proxy_url": Counterpart("dialer"),
    "queue_buffering_backpressure_threshold": Counterpart(None, "batches wait only for linger"),
    "queue_buffering_max_kbytes": Counterpart("buffer_memory"),
    "queue_buffering_max_messages": Counterpart(None, "buffer_memory bounds what waits, in bytes"),
    "queue_buffering_max_ms": Counterpart("linger"),
    "queued_max_messages_kbytes": Counterpart("buffer_memory"),
    "queued_min_messages": Counterpart(None, "buffer_memory bounds what is fetched ahead"),
    "queuing_strategy": Counterpart(None, "records of a partition are in order"),
    "rebalance_cb": Counterpart(None, "on_assigned=, on_revoked= and on_lost= are callbacks"),
    "rebalance_timeout_ms": Counterpart(
        "rebalance_timeout", "of GroupMember; a Consumer has max_poll_interval"
    ),
    "receive_buffer_bytes": Counterpart("receive_buffer"),
    "receive_message_max_bytes": Counterpart("receive_frame_limit"),
    "reconnect_backoff_jitter_ms": Counterpart(None, "a fifth of reconnect_backoff"),
    "reconnect_backoff_max_ms": Counterpart("reconnect_backoff_max"),
    "reconnect_backoff_ms": Counterpart("reconnect_backoff"),
    "request_required_acks": Counterpart("acks"),
    "request_timeout_ms": Counterpart("request_timeout"),
    "resolve_cb": Counterpart("dialer"),
    "retries": Counterpart(
        None, "delivery_timeout bounds the retries of records, api_timeout those of calls"
    ),
    "retry_backoff_max_ms": Counterpart("retry_backoff_max"),
    "retry_backoff_ms": Counterpart("retry_backoff"),
    "sasl_*": Counterpart("security", _SASL),
    "sasl_kerberos_*": Counterpart(
        "security", "Security.gssapi(principal=..., keytab=..., service_name=...)"
    ),
    "sasl_oauth_token_provider": Counterpart("security", "Security.oauth(token)"),
    "sasl_oauthbearer_*": Counterpart("security", _OIDC),
    "security_protocol": Counterpart(
        "security", f"Security.plaintext(), Security.tls(...), {_SASL}"
    ),
    "security_providers": Counterpart(None, "TLS is Python's ssl module"),
    "selector": Counterpart("dialer"),
    "send_buffer_bytes": Counterpart("send_buffer"),
    "session_timeout_ms": Counterpart("session_timeout"),
    "share_*": Counterpart(None, "share groups are not in this release"),
    "socket_blocking_max_ms": Counterpart(None, _NOTHING),
    "socket_cb": Counterpart("dialer"),
    "socket_connection_setup_timeout_max_ms": Counterpart("connection_setup_timeout_max"),
    "socket_connection_setup_timeout_ms": Counterpart("connection_setup_timeout"),
    "socket_keepalive_enable": Counterpart(
        None, "request_timeout and connections_max_idle find dead connections"
    ),
    "socket_max_fails": Counterpart(None, "a request that expires closes its connection"),
    "socket_nagle_disable": Counterpart(None, "it is always disabled"),
    "socket_options": Counterpart("dialer"),
    "socket_receive_buffer_bytes": Counterpart("receive_buffer"),
    "socket_send_buffer_bytes": Counterpart("send_buffer"),
    "socket_timeout_ms": Counterpart("request_timeout"),
    "socks5_proxy": Counterpart("dialer"),
    "ssl_*": Counterpart(
        "security",
        "Security.tls(...), or Security.tls(ssl_context=...) for what it has no argument for",
    ),
    "ssl_ca_location": Counterpart("security", "Security.tls(ca_file=...)"),
    "ssl_cafile": Counterpart("security", "Security.tls(ca_file=...)"),
    "ssl_certfile": Counterpart("security", "Security.tls(certificate_file=...)"),
    "ssl_certificate_location": Counterpart("security", "Security.tls(certificate_file=...)"),
    "ssl_check_hostname": Counterpart("security", "host names are verified by Security.tls()"),
    "ssl_context": Counterpart("security", "Security.tls(ssl_context=...)"),
    "ssl_endpoint_identification_algorithm": Counterpart(
        "security", "host names are verified by Security.tls()"
    ),
    "ssl_key_location": Counterpart("security", "Security.tls(key_file=...)"),
    "ssl_key_password": Counterpart("security", "Security.tls(key_password=...)"),
    "ssl_keyfile": Counterpart("security", "Security.tls(key_file=...)"),
    "ssl_keystore_location": Counterpart("security", "Security.tls(certificate_file=...)"),
    "ssl_password": Counterpart("security", "Security.tls(key_password=...)"),
    "ssl_truststore_location": Counterpart("security", "Security.tls(ca_file=...)"),
    "statistics_interval_ms": Counterpart(None, _METRICS),
    "stats_cb": Counterpart(None, _METRICS),
    "sticky_partitioning_linger_ms": Counterpart(
        None, "keyless records go to one partition for about a batch"
    ),
    "throttle_cb": Counterpart("observers"),
    "topic_blacklist": Counterpart(None, "the topics are arguments"),
    "topic_metadata_propagation_max_ms": Counterpart(
        None, "unknown topics are reported after 5 to 10 s"
    ),
    "topic_metadata_refresh_*": Counterpart(
        None, "metadata_max_age bounds the age of metadata; errors refresh it at once"
    ),
    "topic_metadata_refresh_interval_ms": Counterpart("metadata_max_age"),
    "topics": Counterpart(
        "topics", 'arguments of their own, Consumer(bootstrap, "orders", "refunds")'
    ),
    "transaction_timeout_ms": Counterpart("transaction_timeout"),
    "transactional_id": Counterpart("transactional_id"),
    "value_deserializer": Counterpart("value_deserializer", "a callable(topic, data)"),
    "value_serializer": Counterpart("value_serializer", "a callable(topic, data)"),
}
"""By name; a name that ends in ``*`` is for all that begin so and have no row of their own."""

ARGUMENTS = frozenset(
    (
        *("bootstrap", "dialer", "group", "key_deserializer", "key_serializer", "observers"),
        *("partitioner", "topics", "value_deserializer", "value_serializer"),
    )
)
"""Counterparts that are arguments of a client's constructor rather than settings."""


def normalised(name: str) -> str:
    """Return the key of ``name`` in ``TABLE``: lower case, underscores for dots and dashes."""
    return name.lower().replace(".", "_").replace("-", "_")


def counterpart(name: str) -> Counterpart | None:
    """Return the row of a setting of another client; None if there is none."""
    key = normalised(name)
    row = TABLE.get(key)
    while row is None and "_" in key:
        key = key.rpartition("_")[0]
        row = TABLE.get(f"{key}_*")
    return row


def advice(name: str, value: Any, known: Collection[str]) -> str | None:
    """Return what to write in place of a name that is no setting; None if that isn't known.

    Args:
        name: The unknown name.
        value: What was given for it.
        known: The settings of the class at hand.
    """
    key = normalised(name)
    row = counterpart(name)
    if row is None:
        twin = key.removesuffix("_ms")
        if twin not in known:
            return None
        row = Counterpart(twin)
    ours, note = row
    if ours is None:
        return note
    if ours not in known and ours not in ARGUMENTS:
        return f"{ours} is a setting of other clients of this package"
    if ours == "group":
        return f"the group is {note}"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if key.endswith("_ms"):
        if ours.startswith("enable_"):
            return f"use {ours}, which is True or False"
        if number and 0 <= value < 1e15:
            return f"durations are seconds: {ours}={value / 1000!r}" + (note and f" ({note})")
        return f"use {ours}; {note or IN_SECONDS}"
    if key.endswith("_kbytes") and number:
        return f"sizes are bytes: {ours}={value * 1024}"
    return f"use {ours}" + (note and f": {note}")
