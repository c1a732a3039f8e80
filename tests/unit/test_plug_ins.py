"""Plug-ins are checked when a client is made, by the arguments that they accept."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import pytest

from kclient.admin import Admin
from kclient.consumer import Consumer
from kclient.errors import InvalidArgument, InvalidConfig
from kclient.group.group_member import GroupMember
from kclient.producer import Producer

CODECS = [
    (Producer, "key_serializer"),
    (Producer, "value_serializer"),
    (Consumer, "key_deserializer"),
    (Consumer, "value_deserializer"),
]
CLIENTS = [Producer, Consumer, Admin]
REFUSED = (InvalidArgument, InvalidConfig)


async def coroutine_of_two(topic: str, data: object) -> bytes:
    return b""


class Awaited:
    async def __call__(self, topic: str, data: object) -> bytes:
        return b""


@pytest.mark.parametrize(
    "given", [str.encode, bytes.decode, str, bytes, int, pickle.dumps, "text".encode]
)
@pytest.mark.parametrize(("client", "field"), CODECS)
def test_what_takes_a_value_alone_is_no_codec(client: Any, field: str, given: Any) -> None:
    with pytest.raises(REFUSED, match=rf"{field}=.*callable\(topic, data\)") as caught:
        client("localhost:9092", **{field: given})
    assert "lambda topic, data:" in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [coroutine_of_two, Awaited(), Awaited().__call__, functools.partial(coroutine_of_two)],
)
@pytest.mark.parametrize(("client", "field"), CODECS)
def test_an_async_codec_is_refused(client: Any, field: str, given: Any) -> None:
    """A codec is called once per record, where nothing can be awaited."""
    with pytest.raises(REFUSED, match=rf"{field}=.* is async"):
        client("localhost:9092", **{field: given})


class Partitioner:
    def partition(self, topic: str, key: bytes | None, partition_count: int) -> int:
        return 0


class OfAnotherClient:
    def partition(self, topic: str, key: bytes, value: bytes, cluster: object) -> int:
        return 0


class AwaitedPartitioner:
    async def partition(self, topic: str, key: bytes | None, partition_count: int) -> int:
        return 0


@pytest.mark.parametrize("given", [b"x", OfAnotherClient(), Partitioner, lambda *_: 0])
def test_a_partitioner_that_can_not_be_called_is_refused(given: Any) -> None:
    needed = r"partition\(topic, key, partition_count\)|give an instance"
    with pytest.raises(InvalidConfig, match=rf"partitioner holds .*({needed})"):
        Producer("localhost:9092", partitioner=given)


@pytest.mark.parametrize("name", ["murmur2", "consistent_random"])
def test_a_partitioner_by_name_is_refused_with_what_to_write(name: str) -> None:
    with pytest.raises(InvalidConfig, match=r"leave it out.*partitioners\.ConsistentRandom\(\)"):
        Producer("localhost:9092", partitioner=name)  # type: ignore[arg-type]


def test_an_async_partitioner_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"partitioner holds .*partition\(\) is async"):
        Producer("localhost:9092", partitioner=AwaitedPartitioner())  # type: ignore[arg-type]


def test_a_partitioner_will_do() -> None:
    Producer("localhost:9092", partitioner=Partitioner())


class BadDialer:
    async def dial(self, host: str, port: int, ssl: object) -> None: ...


class BadObserver:
    def observe(self) -> None: ...


class AwaitedObserver:
    async def observe(self, event: object) -> None: ...


@pytest.mark.parametrize("client", CLIENTS)
def test_a_dialer_of_other_arguments_is_refused(client: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"dialer holds .*dial\(target, protocol_factory\)"):
        client("localhost:9092", dialer=BadDialer())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (object(), r"needs a method observe\(\)"),
        (print, r"needs a method observe\(\)"),
        (BadObserver(), r"observe\(event\)"),
        (BadObserver, "give an instance"),
        (AwaitedObserver(), r"observe\(\) is async"),
    ],
)
@pytest.mark.parametrize("client", CLIENTS)
def test_an_observer_that_can_not_observe_is_refused(client: Any, given: Any, words: str) -> None:
    with pytest.raises(InvalidConfig, match=rf"observers holds .*{words}"):
        client("localhost:9092", observers=[given])


class Assignor:
    name = "mine"
    cooperative = False

    def user_data(self, topics: Any) -> bytes | None:
        return None

    def assign(self, cluster: Any, members: Any) -> dict[str, Any]:
        return {}

    def assigned(self, partitions: Any, generation: int) -> None: ...


def assignor(**changes: Any) -> Any:
    return type("Changed", (Assignor,), changes)()


def consumer(given: Any) -> Consumer[Any, Any]:
    return Consumer("localhost:9092", group="g", partition_assignment_strategy=[given])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"assign": lambda self, members: {}}, r"assign\(cluster, members\)"),
        ({"user_data": lambda self: None}, r"user_data\(topics\)"),
        ({"assigned": lambda self, partitions: None}, r"assigned\(partitions, generation\)"),
    ],
)
def test_an_assignor_of_other_arguments_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        consumer(assignor(**changes))


def test_an_async_assignor_is_refused() -> None:
    async def assign(self: Any, cluster: Any, members: Any) -> dict[str, Any]:
        return {}

    with pytest.raises(InvalidConfig, match=r"assign\(\) is async"):
        consumer(assignor(assign=assign))


def test_an_assignor_will_do() -> None:
    consumer(assignor())


class Protocol:
    name = "mine"
    type = "jobs"

    def metadata(self) -> bytes:
        return b""

    async def assign(self, members: Any) -> dict[str, bytes]:
        return {}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"assign": lambda self: {}}, r"assign\(members\)"),
        ({"metadata": lambda self, members: b""}, r"metadata\(\)"),
        ({"on_assigned": lambda self: None}, r"on_assigned\(assignment\)"),
        ({"on_revoked": lambda self: None}, r"on_revoked\(assignment\)"),
        ({"on_lost": lambda self: None}, r"on_lost\(error\)"),
    ],
)
def test_a_group_protocol_of_other_arguments_is_refused(
    changes: dict[str, Any], words: str
) -> None:
    protocol = type("Changed", (Protocol,), changes)()
    with pytest.raises(InvalidConfig, match=words):
        GroupMember("localhost:9092", group="g", protocol=protocol)


def test_a_group_protocol_may_have_async_functions() -> None:
    async def on_assigned(self: Any, assignment: Any) -> None: ...

    protocol = type("Changed", (Protocol,), {"on_assigned": on_assigned})()
    GroupMember("localhost:9092", group="g", protocol=protocol)
