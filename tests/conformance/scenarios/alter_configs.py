"""AlterConfigs, IncrementalAlterConfigs and ListConfigResources: topics' and brokers' configs."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages import alter_configs, incremental_alter_configs
from kclient.protocol.messages.alter_configs import AlterConfigsRequest
from kclient.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kclient.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.conformance.run import Run, until
from tests.conformance.scenario import scenario
from tests.conformance.scenarios.describe_configs import (
    BROKER,
    GROUP,
    LOGGER,
    METRICS,
    TOPIC,
    describe,
)

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
Change = tuple[str, int, str | None]


def change(
    *resources: tuple[int, str, list[Change]], validate_only: bool = False
) -> IncrementalAlterConfigsRequest:
    """Changes of resources, each with operations on its configs."""
    wanted = [
        incremental_alter_configs.AlterConfigsResource(
            kind, name, [incremental_alter_configs.AlterableConfig(*one) for one in changes]
        )
        for kind, name, changes in resources
    ]
    return IncrementalAlterConfigsRequest(wanted, validate_only)


def replace(
    *resources: tuple[int, str, dict[str, str | None]], validate_only: bool = False
) -> AlterConfigsRequest:
    """Requests that replace all configs of resources."""
    wanted = [
        alter_configs.AlterConfigsResource(
            kind, name, [alter_configs.AlterableConfig(*one) for one in configs.items()]
        )
        for kind, name, configs in resources
    ]
    return AlterConfigsRequest(wanted, validate_only)


async def show(run: Run, topic: str, *names: str, expect: dict[str, str]) -> None:
    """Record some configs of a topic once the broker has applied the change."""
    asked = describe((TOPIC, topic, [*names, *expect]), synonyms=True)

    async def heard() -> bool:
        found = await run.quietly(asked, 4)
        values = {one.name: one.value for one in found.results[0].configs}
        return all(values[name] == value for name, value in expect.items())

    await until(heard)
    await run.ask(asked, 4)


@scenario("IncrementalAlterConfigs")
async def one_config_is_set_and_deleted(run: Run) -> None:
    topic = await run.topic(retention_ms=1000)
    for version in (0, 1):
        value = f"200{version}"
        await run.ask(change((TOPIC, topic, [("retention.ms", SET, value)])), version, "set")
        await show(run, topic, "segment.bytes", expect={"retention.ms": value})
    await run.ask(change((TOPIC, topic, [("retention.ms", DELETE, None)])), 1, "delete")
    await show(run, topic, expect={"retention.ms": "-1"})
    await run.ask(change((TOPIC, topic, [("retention.ms", DELETE, None)])), 1, "delete again")


@scenario("IncrementalAlterConfigs")
async def lists_grow_and_shrink(run: Run) -> None:
    topic = await run.topic()
    for operation, value, then in (
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "delete", "compact"),
        (SET, "delete", "delete"),
    ):
        asked = change((TOPIC, topic, [("cleanup.policy", operation, value)]))
        await run.ask(asked, 1, f"{operation} {value}")
        await show(run, topic, expect={"cleanup.policy": then})


@scenario("IncrementalAlterConfigs", ErrorCode.INVALID_CONFIG)
async def values_that_can_not_be(run: Run) -> None:
    topic = await run.topic()
    cases: list[Change] = [
        ("no.such.thing", SET, "1"),
        ("retention.ms", SET, "soon"),
        ("retention.ms", SET, None),
        ("retention.ms", APPEND, "1"),
        ("retention.ms", SUBTRACT, "1"),
        ("retention.ms", 9, "1"),
        ("cleanup.policy", APPEND, "shred"),
        ("cleanup.policy", APPEND, None),
        ("segment.bytes", SET, "1"),
        ("no.such.thing", DELETE, None),
        ("min.insync.replicas", SET, "0"),
        ("max.message.bytes", SET, ""),
    ]
    for one in cases:
        await run.ask_each(change((TOPIC, topic, [one])), 0, 1, note=str(one))


@scenario("IncrementalAlterConfigs", ErrorCode.INVALID_REQUEST)
async def requests_that_can_not_be(run: Run) -> None:
    topic = await run.topic()
    twice: list[Change] = [("retention.ms", SET, "1"), ("retention.ms", SET, "2")]
    await run.ask(change((TOPIC, topic, twice)), 1, "a config twice")
    once: list[Change] = [("retention.ms", SET, "1")]
    await run.ask(change((TOPIC, topic, once), (TOPIC, topic, once)), 1, "a topic twice")
    for kind in (0, 1, 3, 64):
        await run.ask(change((kind, "x", once)), 1, f"kind {kind}")
    await run.ask(change(), 1, "nothing")
    await run.ask(change((TOPIC, topic, [])), 1, "no change")


@scenario("IncrementalAlterConfigs", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
async def topics_that_are_not_there(run: Run) -> None:
    once: list[Change] = [("retention.ms", SET, "1")]
    await run.ask_each(change((TOPIC, run.name("nowhere"), once)), 0, 1)
    topic = await run.topic()
    await run.ask(change((TOPIC, run.name("nowhere"), once), (TOPIC, topic, once)), 1, "beside")
    for name in ("", "a b"):
        await run.ask(change((TOPIC, name, once)), 1, repr(name))


@scenario("IncrementalAlterConfigs")
async def validation_only(run: Run) -> None:
    topic = await run.topic()
    for value in ("1000", "soon"):
        asked = change((TOPIC, topic, [("retention.ms", SET, value)]), validate_only=True)
        await run.ask(asked, 1, value)
    await show(run, topic, expect={"retention.ms": "-1"})


@scenario("IncrementalAlterConfigs", ErrorCode.INVALID_REQUEST)
async def other_brokers(run: Run) -> None:
    changes: list[Change] = [("log.cleaner.threads", SET, "2")]
    for name in ("7", "one"):
        await run.ask(change((BROKER, name, changes), validate_only=True), 1, name)
    await run.ask(change((BROKER, "1", [("no.such", SET, "1")]), validate_only=True), 1, "unknown")
    read_only: list[Change] = [("num.partitions", SET, "2")]
    await run.ask(change((BROKER, "1", read_only), validate_only=True), 1, "read-only")


@scenario("AlterConfigs")
async def all_configs_are_replaced(run: Run) -> None:
    topic = await run.topic(retention_ms=1000, segment_ms=5000)
    for version in (0, 1, 2):
        await run.ask(replace((TOPIC, topic, {"segment.ms": f"700{version}"})), version)
        await show(run, topic, expect={"segment.ms": f"700{version}", "retention.ms": "-1"})
    await run.ask(replace((TOPIC, topic, {})), 2, "none at all")
    await show(run, topic, expect={"segment.ms": "604800000"})


@scenario("AlterConfigs", ErrorCode.INVALID_CONFIG)
async def replacements_that_can_not_be(run: Run) -> None:
    topic = await run.topic()
    for name, value in (
        ("no.such.thing", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", None),
        ("cleanup.policy", "shred"),
        ("segment.bytes", "1"),
    ):
        await run.ask_each(replace((TOPIC, topic, {name: value})), 0, 2, note=f"{name} {value}")


@scenario("AlterConfigs", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REQUEST)
async def replacements_for_what_is_not_there(run: Run) -> None:
    await run.ask_each(replace((TOPIC, run.name("nowhere"), {"retention.ms": "1"})), 0, 2)
    await run.ask(replace((BROKER, "7", {}), validate_only=True), 2, "broker 7")
    for kind in (0, 1, 64):
        await run.ask(replace((kind, "x", {})), 2, f"kind {kind}")
    # No request names a topic twice: Kafka sends no response to it.
    await run.ask_each(replace(), 0, 2, note="nothing")


@scenario("AlterConfigs")
async def replacements_are_validated_only(run: Run) -> None:
    topic = await run.topic()
    for value in ("1000", "soon"):
        asked = replace((TOPIC, topic, {"retention.ms": value}), validate_only=True)
        await run.ask_each(asked, 0, 2, note=value)
    await show(run, topic, expect={"retention.ms": "-1"})


@scenario("ListConfigResources")
async def topics_and_brokers(run: Run) -> None:
    await run.topic()
    await run.ask(ListConfigResourcesRequest([TOPIC]), 1, "topics", listing=True)
    await run.ask(ListConfigResourcesRequest([BROKER]), 1, "brokers")
    await run.ask(ListConfigResourcesRequest([LOGGER]), 1, "loggers")


@scenario("ListConfigResources")
async def none_of_groups_and_metrics(run: Run) -> None:
    await run.ask(ListConfigResourcesRequest(), 0)
    await run.ask(ListConfigResourcesRequest([METRICS]), 1, "metrics")
    await run.ask(ListConfigResourcesRequest([GROUP]), 1, "groups")


@scenario("ListConfigResources", ErrorCode.UNSUPPORTED_VERSION)
async def kinds_that_there_are_not(run: Run) -> None:
    for kind in (0, 1, 3, 64):
        await run.ask(ListConfigResourcesRequest([kind]), 1, f"kind {kind}")
