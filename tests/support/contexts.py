"""Every call of every client, made from contexts where it must not be used: the outcomes.

``python -m tests.support.contexts`` starts clients, forks, uses them in the child, and prints the
outcomes as JSON, then whether they still work in the parent. Used by tests/embedded.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pyarrow

import kclient
from kclient.errors import WrongContext
from kclient.testing import Cluster

P = kclient.TopicPartition("t", 0)
FREE = {"metrics", "health", "run_health", "positions", "assignment", "paused", "lag"}
"""These only read state, and may be called from anywhere."""
REFUSED_ANYHOW = {"start"}
"""Refused everywhere here: they were started before."""


class Clients(NamedTuple):
    """One of each, started."""

    producer: kclient.Producer[Any, Any]
    consumer: kclient.Consumer[Any, Any]
    admin: kclient.Admin
    member: kclient.GroupMember


class Nothing:
    """A group protocol that assigns nothing."""

    type = name = "nothing"

    def metadata(self) -> bytes:
        return b""

    def assign(self, members: Any) -> dict[str, bytes]:
        return {}


@asynccontextmanager
async def running(cluster: Cluster) -> AsyncIterator[Clients]:
    """Clients of a cluster that has the topic t."""
    async with (
        kclient.Producer(cluster.bootstrap) as producer,
        kclient.Consumer(cluster.bootstrap, group="g", auto_offset_reset="earliest") as consumer,
        kclient.Admin(cluster.bootstrap) as admin,
        kclient.GroupMember(cluster.bootstrap, group="m", protocol=Nothing()) as member,
    ):
        consumer.assign([P])
        yield Clients(producer, consumer, admin, member)


def calls(clients: Clients) -> Mapping[str, Callable[[], Any]]:
    """Every call that does something, by name."""
    producer, consumer, admin, member = clients
    spec = {P: kclient.OffsetSpec.LATEST}
    table = pyarrow.table({"value": [b"x"]})
    prepared = kclient.PreparedTransaction("tx", 1, 0, 2)
    acl = kclient.AclBinding("topic", "t", "User:a", "read")
    return {
        "producer.send": lambda: producer.send("t", b"x"),
        "producer.enqueue": lambda: producer.enqueue("t", b"x"),
        "producer.enqueue_nowait": lambda: producer.enqueue_nowait("t", b"x"),
        "producer.send_many": lambda: producer.send_many("t", [b"x"]),
        "producer.send_arrow": lambda: producer.send_arrow("t", table),
        "producer.flush": producer.flush,
        "producer.partitions_for": lambda: producer.partitions_for("t"),
        "producer.transaction": producer.transaction,
        "producer.close": producer.close,
        "consumer.poll": consumer.poll,
        "consumer.poll_arrow": consumer.poll_arrow,
        "consumer.anext": lambda: anext(aiter(consumer)),
        "consumer.assign": lambda: consumer.assign([P]),
        "consumer.unassign": consumer.unassign,
        "consumer.pause": lambda: consumer.pause(P),
        "consumer.resume": lambda: consumer.resume(P),
        "consumer.seek": lambda: consumer.seek(P, 0),
        "consumer.seek_to_beginning": lambda: consumer.seek_to_beginning(P),
        "consumer.seek_to_end": lambda: consumer.seek_to_end(P),
        "consumer.position": lambda: consumer.position(P),
        "consumer.partitions_for": lambda: consumer.partitions_for("t"),
        "consumer.beginning_offsets": lambda: consumer.beginning_offsets([P]),
        "consumer.end_offsets": lambda: consumer.end_offsets([P]),
        "consumer.offsets_for_times": lambda: consumer.offsets_for_times({P: 0}),
        "consumer.subscribe": lambda: consumer.subscribe("t"),
        "consumer.unsubscribe": consumer.unsubscribe,
        "consumer.rejoin": consumer.rejoin,
        "consumer.group_metadata": consumer.group_metadata,
        "consumer.offsets_to_commit": consumer.offsets_to_commit,
        "consumer.commit": consumer.commit,
        "consumer.commit_nowait": consumer.commit_nowait,
        "consumer.committed": lambda: consumer.committed([P]),
        "consumer.run": lambda: consumer.run(handle),
        "consumer.close": consumer.close,
        "member.joined": member.joined,
        "member.rejoin": lambda: member.rejoin("a test"),
        "member.wait_for_rebalance": member.wait_for_rebalance,
        "member.assignments": lambda: anext(member.assignments()),
        "member.close": member.close,
        "admin.create_topics": lambda: admin.create_topics([kclient.NewTopic("u", 1, 1)]),
        "admin.delete_topics": lambda: admin.delete_topics(["t"]),
        "admin.create_partitions": lambda: admin.create_partitions({"t": 2}),
        "admin.alter_consumer_group_offsets": lambda: admin.alter_consumer_group_offsets(
            "g", {kclient.TopicPartition("t", 0): 0}
        ),
        "admin.describe_topics": lambda: admin.describe_topics(["t"]),
        "admin.list_topics": admin.list_topics,
        "admin.describe_cluster": admin.describe_cluster,
        "admin.list_offsets": lambda: admin.list_offsets(spec),
        "admin.end_transaction": lambda: admin.end_transaction(prepared, commit=True),
        "admin.create_acls": lambda: admin.create_acls([acl]),
        "admin.describe_acls": admin.describe_acls,
        "admin.delete_acls": lambda: admin.delete_acls([acl]),
        "admin.alter_client_quotas": lambda: admin.alter_client_quotas({}),
        "admin.describe_client_quotas": admin.describe_client_quotas,
        "admin.alter_user_scram_credentials": lambda: admin.alter_user_scram_credentials([]),
        "admin.describe_user_scram_credentials": admin.describe_user_scram_credentials,
        "admin.create_delegation_token": admin.create_delegation_token,
        "admin.renew_delegation_token": lambda: admin.renew_delegation_token("YWJj"),
        "admin.expire_delegation_token": lambda: admin.expire_delegation_token("YWJj"),
        "admin.describe_delegation_tokens": admin.describe_delegation_tokens,
        "admin.close": admin.close,
    }


async def handle(record: Any) -> None:
    """What run() calls."""


def not_called(clients: Clients) -> set[str]:
    """Public methods that ``calls`` leaves out."""
    found = set()
    for name, client in zip(Clients._fields, clients, strict=True):
        for attribute, _ in inspect.getmembers(type(client), inspect.isfunction):
            if not attribute.startswith("_") and attribute not in FREE | REFUSED_ANYHOW:
                found.add(f"{name}.{attribute}")
    return found - calls(clients).keys()


async def outcomes(clients: Clients) -> dict[str, str]:
    """The outcome of each call, made here: the text of its WrongContext, or what else."""
    return {name: await _outcome(call) for name, call in calls(clients).items()}


async def _outcome(call: Callable[[], Any]) -> str:
    try:
        result = call()
        if inspect.isawaitable(result):
            async with asyncio.timeout(1.0):
                result = await result
    except WrongContext as error:
        return f"WrongContext: {error}"
    except (Exception, asyncio.CancelledError) as error:
        return f"not refused: {error!r}"
    return f"not refused: it gave {result!r}"


async def still_work(clients: Clients) -> bool:
    """They can be used here."""
    await clients.producer.send("t", b"still")
    records = await clients.consumer.poll(timeout=10.0)
    names = await clients.admin.list_topics()
    return len(records) == 1 and "t" in [one.name for one in names]


async def _in_a_fork() -> dict[str, Any]:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        async with running(cluster) as clients:
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    said = asyncio.run(outcomes(clients))
                    os.write(writing, json.dumps(said).encode())
                finally:
                    os._exit(0)
            os.close(writing)
            said = await asyncio.to_thread(_read_all, reading)
            await asyncio.to_thread(os.waitpid, child, 0)
            return {"child": json.loads(said), "parent": await still_work(clients)}


def _read_all(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb") as pipe:
        return pipe.read()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(_in_a_fork())))
