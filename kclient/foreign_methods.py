"""Methods of other clients, and what to write here instead. Sans-IO.

One table of those of aiokafka, kafka-python and confluent-kafka that the class at hand doesn't
have; an AttributeError ends with its row. It agrees with docs/migrating.md, which says more.

Producers have none: a class with ``__getattr__`` looks each attribute up more slowly, which makes
an ``enqueue`` 4 to 6 % dearer on Python 3.13 and a ``send`` 40 % on 3.11.
"""

from __future__ import annotations

_CREDENTIALS = (
    "use `Security.sasl_plain(credentials=function)` or sasl_scram: the function is asked for each "
    "login"
)
_NOT_YET = "not in this release"
_LIST_TOPICS = "`await admin.list_topics()` of an Admin"
_COMMITTED = "use `await consumer.committed([partition])` of a Consumer(..., group=...)"
_CONFIGS = f"{_NOT_YET}; those of a new topic are NewTopic(..., configs={{...}})"
_VERSIONS = "not needed: versions are negotiated with each broker"

TABLE: dict[str, dict[str, str]] = {
    "Consumer": {
        "bootstrap": "use `await consumer.start()`, or `async with`",
        "bootstrap_connected": "use `consumer.health().ok`",
        "cluster_id": "use `consumer.health().client.cluster_id`",
        "commit_async": "use `consumer.commit_nowait()`",
        "consume": "use `await consumer.poll(100, timeout=1.0)`",
        "consumer_group_metadata": "use `consumer.group_metadata()`",
        "get_watermark_offsets": "use `await consumer.beginning_offsets([partition]), "
        "await consumer.end_offsets([partition])`",
        "getmany": "use `await consumer.poll(100, timeout=1.0)`, which returns one list",
        "getone": "use `async for record in consumer: break`, or "
        "`await consumer.poll(1, timeout=None)`, which returns a list of one",
        "highwater": "use `consumer.lag(partition)`, which is what is left to read",
        "incremental_assign": "use `consumer.assign([*consumer.assignment, partition])`",
        "incremental_unassign": "use `consumer.assign(consumer.assignment - {partition})`",
        "last_poll_timestamp": "use `consumer.health().partitions[partition].last_fetch_age`",
        "last_stable_offset": "use `await admin.list_offsets({partition: OffsetSpec.LATEST}, "
        "isolation=IsolationLevel.READ_COMMITTED)` of an Admin",
        "list_topics": f"use {_LIST_TOPICS}",
        "memberid": "use `consumer.group_metadata().member_id`",
        "partitions_for_topic": 'use `await consumer.partitions_for("orders")`',
        "seek_to_committed": "use `consumer.seek(partition, "
        "(await consumer.committed([partition]))[partition] or 0)`",
        "set_sasl_credentials": _CREDENTIALS,
        "stop": "use `await consumer.close()`",
        **dict.fromkeys(
            ("store_offset", "store_offsets"),
            "not needed: only what is finished is committed; by hand, with "
            "enable_auto_commit=False, by `consumer.commit_nowait(record)`",
        ),
        "subscription": f"{_NOT_YET}: keep what you subscribed to; `consumer.assignment` has what "
        "came of it",
        "topics": f"use {_LIST_TOPICS}",
    },
    "Admin": {
        **dict.fromkeys(
            (
                *("abort_transaction", "alter_partition_reassignments", "alter_replica_log_dirs"),
                *("delete_consumer_groups", "delete_group_offsets", "delete_groups"),
                *("delete_records", "describe_consumer_groups"),
                *("describe_features", "describe_groups", "describe_log_dirs"),
                *("describe_metadata_quorum", "describe_producers", "describe_transactions"),
                *("elect_leaders", "find_hanging_transactions", "list_consumer_groups"),
                "list_groups",
                *("list_partition_reassignments", "list_transactions", "remove_group_members"),
                "update_features",
            ),
            _NOT_YET,
        ),
        "set_sasl_credentials": _CREDENTIALS,
        **dict.fromkeys(
            (
                *("alter_configs", "describe_configs", "incremental_alter_configs"),
                *("list_config_resources", "reset_configs"),
            ),
            _CONFIGS,
        ),
        **dict.fromkeys(
            ("alter_group_offsets", "reset_group_offsets"),
            'use `await admin.alter_consumer_group_offsets("audit", {partition: 0})`',
        ),
        **dict.fromkeys(("api_versions", "get_broker_version_data"), _VERSIONS),
        "cluster_id": "use `(await admin.describe_cluster()).cluster_id`",
        "describe_topic_partitions": 'use `await admin.describe_topics(["orders"])`',
        "find_coordinator": "not needed: clients find it themselves",
        **dict.fromkeys(("list_consumer_group_offsets", "list_group_offsets"), _COMMITTED),
        "list_partition_offsets": "use `await admin.list_offsets({partition: OffsetSpec.LATEST})`",
        "poll": "not needed: calls are awaited",
        "stop": "use `await admin.close()`",
        "wait_for_topics": "not needed: `create_topics` waits",
    },
}
"""By the class here and the name there."""


def answer(owner: type, name: str) -> str | None:
    """Return what to write instead of a method that ``owner`` lacks; None if that isn't known."""
    for base in owner.__mro__:  # of a user's subclass, too
        if base.__name__ in TABLE:
            return TABLE[base.__name__].get(name)
    return None
