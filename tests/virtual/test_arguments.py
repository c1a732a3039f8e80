"""Arguments that can't be right are refused at once, by each public method of each client.

Every parameter of every public method has its bad values here; a new one without fails. A call
that refuses does so in its first step: it waits for nothing, and sends nothing.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest

import kclient
from kclient import NewTopic, TopicPartition
from kclient.errors import InvalidArgument, InvalidConfig, RecordTooLarge, SerializationFailed
from kclient.testing import Cluster, run_virtually
from tests.virtual.pool import Pool

REFUSALS = (InvalidArgument, InvalidConfig, SerializationFailed, RecordTooLarge)
CLIENTS: dict[str, Any] = {
    "Admin": kclient.Admin,
    "Consumer": kclient.Consumer,
    "GroupMember": kclient.GroupMember,
    "Producer": kclient.Producer,
}
HUGE = 10**400
P = TopicPartition("t", 0)
ACL = kclient.AclBinding("topic", "t", "User:a", "read")
USER = kclient.QuotaEntity(user="a")
_ODD: list[Any] = [object(), math.nan, b"t", int]
_NO_INT: list[Any] = ["1", 1.0, True, *_ODD]
_NO_TIME = ["5", True, -1, math.nan, -math.inf, 901, 30_000, HUGE, b"5", [], int]
_NO_NAME: list[Any] = [None, 5, "", "a b", "..", "x" * 250, "\ud800", ["t"], *_ODD]
_NO_PARTITION: list[Any] = [
    *(None, 5, "t", ("t",), ("t", 0, 0), [P], {}, *_ODD),
    *(TopicPartition("t", bad) for bad in (-1, 2**31, HUGE, None, *_NO_INT)),
    *(TopicPartition(bad, 0) for bad in _NO_NAME),
]
_NO_PARTITIONS: list[Any] = [None, 5, "t", P, *_ODD, *([bad] for bad in _NO_PARTITION)]
_NO_OFFSET: list[Any] = [None, -1, 2**63, HUGE, [], *_NO_INT]
_NO_STAMP: list[Any] = [*_NO_INT, -2, 2**63, HUGE, []]
_NO_FLAG: list[Any] = [None, 0, 1, "yes", [], *_ODD]
_NO_TEXT: list[Any] = [None, 5, [], *_ODD]
_NO_CALLBACK: list[Any] = [5, "print", [], lambda: None]
_NO_TOPICS: list[Any] = [None, 5, "t", b"t", *_ODD, *([bad] for bad in _NO_NAME)]
_NO_ID: list[Any] = [b"", b"x" * 15, bytes(16)]
_NO_TOTAL: list[Any] = [None, 0, -1, 2**31, HUGE, *_NO_INT]
_NO_HEADERS: list[Any] = [5, "h", object(), [5], [("h",)], [(None, b"")], [("h", 5)], {5: b""}]
_NO_MAPPING: list[Any] = [None, 5, "t", [], [P], *_ODD]
_NO_LIMIT: list[Any] = ["1", True, object(), math.nan, []]
_NO_LIFETIME: list[Any] = ["5", True, 0, -1, math.nan, math.inf, 31_536_001, HUGE, [], int]
_NO_PRINCIPAL: list[Any] = [5, "", "alice", ":alice", "User:", [], *_ODD]
_NO_ACLS: list[Any] = [
    *(None, 5, "t", ACL, [5], [None], ["t"], *_ODD),
    [kclient.AclBinding("unknown", "t", "User:a", "read")],
]


def of(key: Any, values: list[Any]) -> list[Any]:
    """Mappings of a good key to each bad value."""
    return [{key: value} for value in values]


def keyed(keys: list[Any], value: Any) -> list[Any]:
    """Mappings of each bad key that can be one."""
    return [{key: value} for key in keys if _hashable(key)]


def _hashable(key: Any) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True


BAD: dict[str, list[Any]] = {
    "acl_filter": [5, "t", [], ACL, *_ODD],
    "after": _NO_LIFETIME,
    "alterations": [*_NO_MAPPING, *keyed([5, "a", kclient.QuotaEntity(user=USER.ANY)], {}),
                    *of(USER, [None, 5, "x", []]),
                    *of(USER, [{"x": bad} for bad in (-1, HUGE, math.inf, *_NO_LIMIT)]),
                    *of(USER, [{bad: 1} for bad in (None, 5, "")])],
    "assignments": [5, "t", [], {"u": [[1]]}, {"t": 5}, {"t": [[-1]]}, {"t": [[2**31]]},
                    {"t": [["1"]]}, {"t": [[]]}, {"t": [None]}, {5: [[1]]}],
    "bindings": _NO_ACLS,
    "columns": [5, "key", [], ["keys"], ["key", "key"], [5], [[]], *_ODD],
    "commit": _NO_FLAG,
    "concurrency": [None, 0, -1, *_NO_INT],
    "dead_letter_topic": [one for one in _NO_NAME if one is not None],
    "drain_timeout": [None, math.inf, *_NO_TIME],
    "entity": [5, "a", [], {}, *_ODD],
    "filters": _NO_ACLS,
    "group": [None, "", 5, b"g", [], *_ODD],
    "handler": [None, 5, "print", object(), int, lambda: None],
    "headers": _NO_HEADERS,
    "internal": _NO_FLAG,
    "isolation": [None, 2, "read_committed", True, -1, *_ODD],
    "key": [5, "k", [], object()],
    "leave": [0, 1, "yes", [], *_ODD],
    "max_in_flight": [0, -1, *_NO_INT],
    "max_lifetime": _NO_LIFETIME,
    "max_records": [0, -1, *_NO_INT],
    "offset": _NO_OFFSET,
    "offsets": [None, 5, "t", [], [P], {P: -1}, {P: 2**63}, {P: "1"}, {"t": 1}, {5: 1}, *_ODD],
    "on_assigned": _NO_CALLBACK,
    "on_lost": _NO_CALLBACK,
    "on_revoked": _NO_CALLBACK,
    "ordering": [None, 5, "keys", []],
    "owner": _NO_PRINCIPAL,
    "owners": [5, "User:a", *([bad] for bad in (None, *_NO_PRINCIPAL)), *_ODD],
    "partition": _NO_PARTITION,
    "partitions": _NO_PARTITIONS,
    "pattern": [5, "(", b"t", [], *_ODD],
    "period": _NO_LIFETIME,
    "prepared": [None, 5, "tx", *_ODD],
    "producer": [5, "p", object(), kclient.Producer],
    "reason": _NO_TEXT,
    "renewers": [None, 5, "User:a", *([bad] for bad in (None, *_NO_PRINCIPAL)), *_ODD],
    "retries": [5, "x", kclient.Retries],
    "retry_topics": [5, None, "t", ["t"], [None]],
    "return_errors": _NO_FLAG,
    "specs": [*_NO_MAPPING, *keyed(_NO_PARTITION, 0),
              *of(P, [None, -6, 2**63, HUGE, "latest", [], *_NO_INT])],
    "strict": _NO_FLAG,
    "timeout": _NO_TIME,
    "times": [*_NO_MAPPING, *keyed(_NO_PARTITION, 0), *of(P, [None, -1, 2**63, HUGE, *_NO_INT])],
    "timestamp": _NO_STAMP,
    "token": [None, 5, "", "no base64", "ä", [], *_ODD],
    "topic": _NO_NAME,
    "topics": [*_NO_TOPICS, *([bad] for bad in _NO_ID)],
    "totals": [*_NO_MAPPING, *keyed(_NO_NAME, 1), *of("t", _NO_TOTAL)],
    "until": [*(bad for bad in _NO_MAPPING if bad is not None), *keyed(_NO_PARTITION, 0),
              *of(P, _NO_OFFSET)],
    "users": [5, "a", *([bad] for bad in (None, 5, "", "a\0", "\ud800")), *_ODD],
    "validate_only": _NO_FLAG,
    "value": [5, "v", [], object()],
    "what": [5, "t", [], object(), *keyed(_NO_PARTITION, 0), *of(P, _NO_OFFSET)],
}  # fmt: skip
"""Bad values by name of the parameter."""
SPECIAL: dict[str, list[Any]] = {
    "Admin.alter_user_scram_credentials.alterations": [
        None, 5, "a", ["a"], [5], [None], *_ODD,
        [kclient.ScramUpsertion("a", "b"), kclient.ScramDeletion("a")],
    ],
    "Admin.create_topics.topics": [None, 5, "t", NewTopic("t"), ["t"], [None], [5],
                                   [NewTopic("t"), NewTopic("t")], *_ODD],
    "Consumer.pause.partitions": _NO_PARTITION,
    "Consumer.resume.partitions": _NO_PARTITION,
    "Consumer.seek_to_beginning.partitions": _NO_PARTITION,
    "Consumer.seek_to_end.partitions": _NO_PARTITION,
    "Consumer.subscribe.topics": _NO_NAME,
    "Producer.enqueue.partition": [-1, 2**31, HUGE, *_NO_INT],
    "Producer.enqueue_nowait.partition": [-1, 2**31, HUGE, *_NO_INT],
    "Producer.send.partition": [-1, 2**31, HUGE, *_NO_INT],
    "Producer.send_arrow.data": [None, 5, "t", [], object()],
    "Producer.send_many.records": [None, 5, object(), int],
}  # fmt: skip
"""Bad values of parameters whose name means something else there."""
GOOD: dict[str, Any] = {
    "Admin.alter_client_quotas": {"alterations": {USER: {"producer_byte_rate": 1}}},
    "Admin.alter_user_scram_credentials": {"alterations": [kclient.ScramDeletion("a")]},
    "Admin.create_acls": {"bindings": [ACL]},
    "Admin.delete_acls": {"filters": [ACL]},
    "Admin.expire_delegation_token": {"token": "YWJj"},
    "Admin.renew_delegation_token": {"token": "YWJj"},
    "Admin.create_topics": {"topics": [NewTopic("n")]},
    "Admin.create_partitions": {"totals": {"t": 2}},
    "Admin.delete_topics": {"topics": ["t"]},
    "Admin.describe_topics": {"topics": ["t"]},
    "Admin.end_transaction": {
        "prepared": kclient.PreparedTransaction("tx", 1, 0, 2),
        "commit": True,
    },
    "Admin.alter_consumer_group_offsets": {"group": "g", "offsets": {P: 0}},
    "Admin.list_offsets": {"specs": {P: 0}},
    "Consumer.assign": {"partitions": [P]},
    "Consumer.beginning_offsets": {"partitions": [P]},
    "Consumer.committed": {"partitions": [P]},
    "Consumer.end_offsets": {"partitions": [P]},
    "Consumer.lag": {"partition": P},
    "Consumer.offsets_for_times": {"times": {P: 0}},
    "Consumer.partitions_for": {"topic": "t"},
    "Consumer.position": {"partition": P},
    "Consumer.run": {"handler": print},
    "Consumer.seek": {"partition": P, "offset": 0},
    "GroupMember.rejoin": {"reason": "x"},
    "Producer.partitions_for": {"topic": "t"},
    "Producer.send_arrow": {"topic": "t", "data": None},
    "Producer.send_many": {"topic": "t", "records": []},
    "Producer.send": {"topic": "t", "value": b"v"},
    "Producer.enqueue": {"topic": "t", "value": b"v"},
    "Producer.enqueue_nowait": {"topic": "t", "value": b"v"},
}
"""Arguments without which a method can't be called."""


LETTING_OTHERS_RUN = ("enqueue", "send_many")
"""Methods whose first step may be to let other tasks run."""


def parameters() -> list[tuple[str, str, str]]:
    """Client, method and parameter of all public methods."""
    found = []
    for client, kind in CLIENTS.items():
        for method, function in inspect.getmembers(kind, callable):
            if not method.startswith("_"):
                names = list(inspect.signature(function).parameters)[1:]
                found += [(client, method, name) for name in names]
    return found


def bad_values(client: str, method: str, name: str) -> list[Any]:
    """The values that must be refused."""
    values = SPECIAL.get(f"{client}.{method}.{name}")
    values = BAD[name] if values is None else values
    parameter = inspect.signature(getattr(CLIENTS[client], method)).parameters[name]
    if name == "timeout" and "None" not in str(parameter.annotation):
        return [*values, None]
    return values


def test_each_parameter_of_each_public_method_has_bad_values() -> None:
    assert len(parameters()) > 70
    for client, method, name in parameters():
        assert bad_values(client, method, name), f"{client}.{method}({name}=)"


async def outcome(method: Callable[..., Any], arguments: dict[str, Any]) -> str | None:
    """What is wrong with how a call refuses; None if nothing is."""
    varying = [
        name
        for name, one in inspect.signature(method).parameters.items()
        if one.kind is one.VAR_POSITIONAL
    ]
    spread = [arguments.pop(name) for name in varying if name in arguments]
    try:
        result = method(*spread, **arguments)
        if not inspect.iscoroutine(result):
            return f"it returned {result!r:.80}"
        if method.__name__ in LETTING_OTHERS_RUN:
            return f"it returned {await result!r:.80}"
        try:
            result.send(None)
        finally:
            result.close()
        return "it waited"
    except StopIteration as done:
        return f"it returned {done.value!r:.80}"
    except REFUSALS:
        return None
    except Exception as error:
        return f"it raised {error!r:.200}"


async def refusals_of(client: Any, name: str, sent: Callable[[], int]) -> list[str]:
    """All calls that take a bad value, with what they do instead of refusing it."""
    wrong = []
    for kind, method, parameter in parameters():
        if kind != name:
            continue
        for value in bad_values(kind, method, parameter):
            before = sent()
            arguments = {**GOOD.get(f"{kind}.{method}", {}), parameter: value}
            found = await outcome(getattr(client, method), arguments)
            if found is None and sent() != before:
                found = "it sent a request"
            if found is not None:
                shown = repr(value)
                wrong.append(f"{kind}.{method}({parameter}={shown:.60}): {found}")
    return wrong


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", list(CLIENTS))
def test_bad_arguments_are_refused_at_once(name: str, known: bool) -> None:
    async def play() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic("t")
            made: dict[str, Callable[[], Any]] = {
                "Admin": lambda: kclient.Admin(cluster.bootstrap),
                "Consumer": lambda: kclient.Consumer(cluster.bootstrap, group="g"),
                "GroupMember": lambda: kclient.GroupMember(
                    cluster.bootstrap, group="g", protocol=Pool()
                ),
                "Producer": lambda: kclient.Producer(cluster.bootstrap),
            }
            async with made[name]() as client:
                if name == "Producer" and known:
                    await client.send("t", b"v")
                wrong = await refusals_of(client, name, lambda: len(cluster.requests))
                assert not wrong, "\n".join(wrong)

    run_virtually(play())


@pytest.mark.parametrize("how", ["manual", "group"])
def test_those_of_a_consumer_with_partitions_are_too(how: str) -> None:
    async def play() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic("t")
            async with kclient.Consumer(cluster.bootstrap, "t", group="g") as client:
                if how == "manual":
                    await client.unsubscribe()
                    client.assign([P])
                await client.poll(timeout=10.0)
                assert client.assignment == {P}
                wrong = await refusals_of(client, "Consumer", lambda: len(cluster.requests))
                assert not wrong, "\n".join(wrong)

    run_virtually(play())


BAD_FOR_CONSTRUCTORS: dict[str, list[Any]] = {
    "bad_records": [None, 5, "drop", []],
    "bootstrap": [5, [], "", b"h", {"bootstrap.servers": "h"}, "h:0", object(), math.nan],
    "config": [5, "x", {}, object(), kclient.testing],
    "dialer": [5, "x", object()],
    "group": [5, "", [], object()],
    "key_deserializer": [5, "x", object()],
    "key_serializer": [5, "x", object()],
    "observers": [5, None, [5], [None], [print]],
    "on_assigned": _NO_CALLBACK,
    "on_lost": _NO_CALLBACK,
    "on_revoked": _NO_CALLBACK,
    "partitioner": [5, object(), int],
    "pattern": BAD["pattern"],
    "protocol": [None, 5, object(), Pool],
    "topics": _NO_NAME,
    "value_deserializer": [5, "x", object()],
    "value_serializer": [5, "x", object()],
}
"""Bad values of the arguments of constructors; ``test_config`` has those of settings."""


@pytest.mark.parametrize("name", list(CLIENTS))
async def test_bad_arguments_of_a_constructor_are_refused(name: str) -> None:
    make, wrong = CLIENTS[name], []
    good: dict[str, Any] = {"bootstrap": "h:1"}
    if name in ("Consumer", "GroupMember"):
        good["group"] = "g"
    if name == "GroupMember":
        good["protocol"] = Pool()
    for parameter in list(inspect.signature(make).parameters):
        for value in [] if parameter == "settings" else BAD_FOR_CONSTRUCTORS[parameter]:
            arguments = {**good, parameter: value}
            topics = [arguments.pop("topics")] if parameter == "topics" else []
            try:
                make(arguments.pop("bootstrap"), *topics, **arguments)
                found = "it was made"
            except REFUSALS:
                continue
            except Exception as error:
                found = f"it raised {error!r:.200}"
            wrong.append(f"{name}({parameter}={value!r:.60}): {found}")
    assert not wrong, "\n".join(wrong)


def test_clients_with_durations_without_limit_work() -> None:
    async def play() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic("t")
            endless: dict[str, Any] = {
                "connections_max_idle": math.inf,
                "metadata_max_age": math.inf,
            }
            async with (
                kclient.Producer(
                    cluster.bootstrap, delivery_timeout=math.inf, max_block=math.inf, **endless
                ) as producer,
                kclient.Consumer(
                    cluster.bootstrap,
                    "t",
                    group="g",
                    max_poll_interval=math.inf,
                    auto_offset_reset="earliest",
                    api_timeout=math.inf,
                    **endless,
                ) as consumer,
            ):
                await producer.send("t", b"v")
                assert [record.value for record in await consumer.poll(timeout=30.0)] == [b"v"]
                await consumer.commit()
            joins = [one.request.rebalance_timeout_ms for one in cluster.requests.of("JoinGroup")]
            assert set(joins) == {2**31 - 1}

    run_virtually(play())
