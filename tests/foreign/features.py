"""What a foreign client is asked to do: the rows of the matrix.

Every client plays each of them, or states why it can't; `scene.play` refuses a client that leaves
one out.
"""

from __future__ import annotations

FEATURES: dict[str, str] = {
    "cluster.describe": "brokers, controller, cluster id",
    "cluster.versions": "versions of the APIs that brokers serve",
    "cluster.log_dirs": "log folders and the replicas in them",
    "cluster.elect": "preferred leaders elected; none needed, unknown partition",
    "topics.create": "topics made, also with configs, by assignment, and only validated",
    "topics.refuse": "topics refused: twice, bad name, count, replication or config",
    "topics.list": "topics listed, the unknown told from the known",
    "topics.describe": "partitions, leaders, replicas, in sync; the unknown topic",
    "topics.grow": "partitions added; refused downwards and for the unknown",
    "topics.delete": "topics deleted; the unknown one refused",
    "configs.describe": "configs of a topic and a broker, with sources and synonyms",
    "configs.alter": "topic configs set, appended, deleted, refused",
    "configs.broker": "dynamic configs of one broker and of all",
    "records.delete": "records before an offset deleted; beyond the end refused",
    "offsets.list": "earliest, latest, by time, of the newest record",
    "produce.records": "keys, values, nulls, headers and timestamps come back as written",
    "produce.codecs": "batches under every codec of the client",
    "produce.idempotent": "an idempotent producer, in order and without repeats",
    "produce.acks": "acks 0, 1 and all",
    "produce.large": "records of nearly 1 MB",
    "produce.refuse": "a batch over max.message.bytes, a missing partition",
    "produce.auto_create": "writing to an unknown topic makes it",
    "consume.assign": "partitions read by assignment, both isolation levels, pause and resume",
    "consume.seek": "seeks to an offset, a time, beginning and end",
    "consume.reset": "an offset out of range: earliest, latest, none",
    "groups.commit": "one member: joins, commits, and is followed by the next",
    "groups.rebalance": "two members: partitions shared, and taken over when one leaves",
    "groups.cooperative": "two members of a cooperative group keep what they have",
    "groups.static": "a static member comes back without a rebalance",
    "groups.list": "groups listed, by state where the client can",
    "groups.describe": "state, protocol, members; the unknown group",
    "groups.offsets": "offsets of groups listed, altered or reset, deleted",
    "groups.delete": "groups deleted; refused while they have members, and the unknown",
    "transactions.commit": "transactions committed and aborted, for both isolation levels",
    "transactions.offsets": "offsets of a group in transactions; refused to a stale member",
    "transactions.fence": "a producer whose transactional id was taken over is fenced",
    "transactions.copy": "a topic copied exactly once by members that abort, move and die",
    "transactions.describe": "transactions and producers listed and described; none hangs",
    "load": "20,000 records written and read",
}

TRANSACTIONS = tuple(name for name in FEATURES if name.startswith("transactions."))
"""Those that clients play in both versions of the transaction protocol."""
