"""DescribeClientQuotas and AlterClientQuotas, and what quotas do to clients."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.message import Request
from kclient.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from kclient.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kclient.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kclient.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kclient.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from tests.conformance.plain import plain
from tests.conformance.run import Run
from tests.conformance.scenario import scenario
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import fetch, produce

EXACT, DEFAULT, SPECIFIED = range(3)
VERSIONS = (0, 1)
Names = dict[str, str | None]


def entry(names: Names, **values: float | None) -> RequestEntryData:
    """Set these quotas of an entity; None removes one."""
    entity = [RequestEntityData(kind.replace("_", "-"), name) for kind, name in names.items()]
    ops = [OpData(key, value or 0.0, value is None) for key, value in values.items()]
    return RequestEntryData(entity, ops)


def alter(*entries: RequestEntryData, validate_only: bool = False) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(list(entries), validate_only)


def describe(
    *components: tuple[str, int, str | None], strict: bool = True
) -> DescribeClientQuotasRequest:
    return DescribeClientQuotasRequest([ComponentData(*one) for one in components], strict)


async def forget(run: Run, names: Names, *keys: str) -> None:
    """Leave the broker, which other tests share, as it was."""
    await run.quietly(alter(entry(names, **dict.fromkeys(keys))), 1)


@scenario("AlterClientQuotas")
async def of_users_and_clients(run: Run) -> None:
    user, client = run.name("alice"), run.name("app")
    entities: tuple[Names, ...] = ({"user": user}, {"client-id": client})
    entities += ({"user": user, "client-id": client}, {"user": user, "client-id": None})
    for version in VERSIONS:
        for number, names in enumerate(entities):
            wanted = entry(names, consumer_byte_rate=1000.0 + number)
            await run.ask(alter(wanted), version)
            await run.published()
            exact = [(kind, DEFAULT if one is None else EXACT, one) for kind, one in names.items()]
            await run.ask(describe(*exact), version)
            await run.ask(alter(entry(names, consumer_byte_rate=None)), version)
            await run.published()
            await run.ask(describe(*exact), version)


@scenario("AlterClientQuotas")
async def of_addresses(run: Run) -> None:
    await run.ask(alter(entry({"ip": "10.9.8.7"}, connection_creation_rate=5.0)), 1)
    await run.published()
    await run.ask(describe(("ip", EXACT, "10.9.8.7")), 1)
    await run.ask(alter(entry({"ip": "10.9.8.7"}, connection_creation_rate=None)), 1)
    await run.published()
    await run.ask(describe(("ip", EXACT, "10.9.8.7")), 1)


@scenario("AlterClientQuotas")
async def only_validated(run: Run) -> None:
    user = run.name("alice")
    wanted = entry({"user": user}, request_percentage=12.5)
    await run.ask(alter(wanted, validate_only=True), 1)
    await run.published()
    await run.ask(describe(("user", EXACT, user)), 1)


@scenario("AlterClientQuotas")
async def a_quota_that_was_not_there_is_removed(run: Run) -> None:
    user = run.name("alice")
    await run.ask(alter(entry({"user": user}, consumer_byte_rate=None)), 1)
    await run.ask(alter(entry({"user": user}, of_no_kind=None)), 1)
    await run.ask(alter(entry({"user": user})), 1, "none at all")
    await run.ask(alter(), 1, "no entity at all")


@scenario("AlterClientQuotas", ErrorCode.INVALID_REQUEST)
async def values_that_can_not_be(run: Run) -> None:
    names: Names = {"user": run.name("alice")}
    for value in (0.0, -1.0, 1.5, 1e19):
        await run.ask(alter(entry(names, producer_byte_rate=value)), 1, str(value))
    for value in (0.0, -1.0):
        await run.ask(alter(entry(names, request_percentage=value)), 1, f"percentage {value}")
    await run.ask(alter(entry({"ip": "10.9.8.7"}, connection_creation_rate=3e9)), 1)
    await run.ask(alter(entry({"ip": "10.9.8.7"}, connection_creation_rate=1.5)), 1)


@scenario("AlterClientQuotas", ErrorCode.INVALID_REQUEST)
async def keys_that_can_not_be(run: Run) -> None:
    names: Names = {"user": run.name("alice")}
    await run.ask(alter(entry(names, of_no_kind=1.0)), 1)
    await run.ask(alter(entry(names, connection_creation_rate=1.0)), 1)
    await run.ask(alter(entry({"ip": "10.9.8.7"}, producer_byte_rate=1.0)), 1)


@scenario("AlterClientQuotas", ErrorCode.INVALID_REQUEST)
async def entities_that_can_not_be(run: Run) -> None:
    entities: tuple[Names, ...] = ({}, {"group": "x"}, {"user": ""}, {"client-id": ""})
    entities += ({"ip": "10.9.8.7", "user": "x"}, {"ip": "not an address"})
    for names in entities:
        await run.ask(alter(entry(names, producer_byte_rate=1.0)), 1)


@scenario("AlterClientQuotas", ErrorCode.INVALID_REQUEST)
async def an_entity_or_a_key_twice(run: Run) -> None:
    names: Names = {"user": run.name("alice")}
    twice = entry(names, consumer_byte_rate=1.0)
    twice.ops *= 2
    await run.ask(alter(twice), 1, "key")
    one, other = (entry(names, consumer_byte_rate=value) for value in (1.0, 2.0))
    await run.ask(alter(one, other), 1, "entity")
    await run.published()
    await run.ask(describe(("user", EXACT, names["user"])), 1)
    await forget(run, names, "consumer_byte_rate")


@scenario("DescribeClientQuotas")
async def filters(run: Run) -> None:
    user, client = run.name("alice"), run.name("app")
    names: Names = {"user": user, "client-id": client}
    await run.quietly(alter(entry(names, producer_byte_rate=1e6)), 1)
    await run.published()
    for version in VERSIONS:
        for strict in (False, True):
            await run.ask(describe(("user", EXACT, user), strict=strict), version)
            both = (("user", EXACT, user), ("client-id", SPECIFIED, None))
            await run.ask(describe(*both, strict=strict), version)
            other = (("user", EXACT, user), ("client-id", DEFAULT, None))
            await run.ask(describe(*other, strict=strict), version)
            await run.ask(describe(("user", EXACT, client), strict=strict), version)
    await forget(run, names, "producer_byte_rate")


@scenario("DescribeClientQuotas", ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION)
async def filters_that_can_not_be(run: Run) -> None:
    for one in (
        ("", EXACT, "x"),
        ("group", EXACT, "x"),
        ("user", EXACT, None),
        ("user", DEFAULT, "x"),
        ("user", SPECIFIED, "x"),
        ("user", 3, None),
    ):
        await run.ask(describe(one), 1)
    await run.ask(describe(("user", EXACT, "x"), ("user", EXACT, "y")), 1)
    await run.ask(describe(("user", EXACT, "x"), ("ip", EXACT, "10.9.8.7")), 1)


# What they do


async def limit(run: Run, name: str, **values: float) -> None:
    """Set quotas of a client id, and wait until they apply."""
    await run.quietly(alter(entry({"client-id": name}, **values)), 1)
    await run.published(2)


@scenario("Produce")
async def a_producer_that_exceeds_its_quota(run: Run) -> None:
    topic, client, other = await run.topic(), run.name("app"), run.name("other")
    await limit(run, client, producer_byte_rate=5000.0)
    peer = run.peer(client)
    await peer.ask(produce(topic, batch_bytes(value=bytes(40_000))), 9, "not yet")
    await run.ask(produce(topic, batch_bytes(value=bytes(60_000))), 9, "another client")
    await limit(run, other, producer_byte_rate=5000.0)
    await run.peer(other).ask(produce(topic, batch_bytes(value=bytes(51_000))), 9, "at once")
    for name in (client, other):
        await forget(run, {"client-id": name}, "producer_byte_rate")


@scenario("Fetch")
async def a_consumer_that_exceeds_its_quota(run: Run) -> None:
    topic = await run.topic()
    await run.quietly(produce(topic, batch_bytes(value=bytes(51_000))), 9)
    await run.quietly(produce(topic, batch_bytes(value=bytes(100))), 9)
    for version in (12, 4):
        client = run.name(f"app-{version}")
        await limit(run, client, consumer_byte_rate=5000.0)
        await run.peer(client).ask(fetch(topic, 0), version, "more than its window has")
        await run.peer(client).ask(fetch(topic, 0, offset=1), version, "the first did not count")
        await forget(run, {"client-id": client}, "consumer_byte_rate")


@scenario("Fetch")
async def a_session_of_a_consumer_that_exceeds_its_quota(run: Run) -> None:
    topic, client = await run.topic(), run.name("app")
    opened = await run.peer(client).ask(fetch(topic, 0, session=(0, 0)), 12)
    await run.quietly(produce(topic, batch_bytes(value=bytes(51_000))), 9)
    await limit(run, client, consumer_byte_rate=5000.0)
    await run.peer(client).ask(fetch(None, session=(opened.session_id, 1)), 12, "too much")
    await forget(run, {"client-id": client}, "consumer_byte_rate")
    await run.published(2)
    await run.peer(client).ask(fetch(None, session=(opened.session_id, 2)), 12, "without a quota")


async def change(run: Run, client: str, request: Request, version: int) -> None:
    """Record a response, with its throttle time in units of 10,000 s: it depends on the moment."""
    peer = run.peer(client)
    found = await peer.quietly(request, version)
    found.throttle_time_ms = round(found.throttle_time_ms / 10_000_000)
    peer.record(f"{request.NAME} v{version}", request.NAME, plain(found, version))


def creation(name: str) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic(name, 1, 1)], 30_000)


@scenario("CreateTopics", ErrorCode.THROTTLING_QUOTA_EXCEEDED)
async def changes_beyond_a_quota(run: Run) -> None:
    topic, client, older = await run.topic(), run.name("app"), run.name("older")
    for name in (client, older):
        await limit(run, name, controller_mutation_rate=1e-5)
    await change(run, client, creation(run.name("first")), 7)
    await change(run, client, creation(run.name("second")), 7)
    await change(run, client, DeleteTopicsRequest([DeleteTopicState(topic)], timeout_ms=9000), 6)
    growth = CreatePartitionsRequest([CreatePartitionsTopic(topic, 2, None)], 9000)
    await change(run, client, growth, 3)
    await change(run, older, creation(run.name("third")), 5)
    await change(run, older, growth, 2)
    for name in (client, older):
        await forget(run, {"client-id": name}, "controller_mutation_rate")
