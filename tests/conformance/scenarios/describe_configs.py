"""DescribeConfigs: of topics and brokers, with their synonyms, and of what is not there.

Without documentation, which the embedded cluster hasn't.
"""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from kclient.testing.broker_configs import DEFINITIONS
from tests.conformance.run import Run
from tests.conformance.scenario import scenario

UNKNOWN, TOPIC, BROKER, LOGGER, METRICS, GROUP = 0, 2, 4, 8, 16, 32
SHOWN = ["retention.ms", "cleanup.policy", "segment.bytes", "max.message.bytes"]
OF_BROKERS = ["num.partitions", "auto.create.topics.enable", "log.retention.ms", "node.id"]
OF_A_MACHINE = {
    "advertised.listeners",
    "controller.quorum.voters",
    "listeners",
    "log.dirs",
    "fetch.max.bytes",  # 8 MiB by default on the embedded cluster; set otherwise here
}
"""What can't be the same on both sides: ports, directories, and one default of our own."""


def describe(
    *resources: tuple[int, str] | tuple[int, str, list[str] | None],
    synonyms: bool = False,
) -> DescribeConfigsRequest:
    """A request for resources, each with the names of configs or with None for all."""
    wanted = [
        DescribeConfigsResource(kind, name, rest[0] if rest else None)
        for kind, name, *rest in resources
    ]
    return DescribeConfigsRequest(wanted, synonyms, False)


@scenario("DescribeConfigs")
async def a_topic_in_every_version(run: Run) -> None:
    topic = await run.topic(retention_ms=1000)
    await run.ask_each(describe((TOPIC, topic)), 1, 2, 3, 4)


@scenario("DescribeConfigs")
async def synonyms_of_a_topics_configs(run: Run) -> None:
    topic = await run.topic(retention_ms=1000, max_message_bytes=2000)
    await run.ask_each(describe((TOPIC, topic), synonyms=True), 1, 4)


@scenario("DescribeConfigs")
async def some_configs_of_a_topic(run: Run) -> None:
    topic = await run.topic()
    await run.ask(describe((TOPIC, topic, SHOWN)), 4)
    await run.ask(describe((TOPIC, topic, ["no.such", "retention.ms"])), 4, "one that isn't there")
    await run.ask_each(describe((TOPIC, topic, [])), 1, 4, note="none")
    await run.ask(describe((TOPIC, topic, ["retention.ms"] * 2)), 4, "twice")


@scenario(
    "DescribeConfigs",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
)
async def topics_that_are_not_there(run: Run) -> None:
    await run.ask_each(describe((TOPIC, run.name("nowhere"))), 1, 4)
    for name in ("", ".", "a b"):
        await run.ask(describe((TOPIC, name)), 4, repr(name))


@scenario("DescribeConfigs", ErrorCode.INVALID_REQUEST)
async def brokers_that_are_not_asked(run: Run) -> None:
    for name in ("2", "-1", "one"):
        await run.ask_each(describe((BROKER, name)), 1, 4, note=repr(name))


@scenario("DescribeConfigs", ErrorCode.INVALID_REQUEST)
async def kinds_of_resources(run: Run) -> None:
    for kind in (UNKNOWN, 1, 3, 64, -1):
        await run.ask(describe((kind, "x")), 4, f"kind {kind}")


@scenario("DescribeConfigs")
async def a_broker(run: Run) -> None:
    names = [name for name in DEFINITIONS if name not in OF_A_MACHINE]
    await run.ask_each(describe((BROKER, "1", names)), 1, 4)
    await run.ask(describe((BROKER, "1", names), synonyms=True), 4, "synonyms")


@scenario("DescribeConfigs")
async def some_configs_of_a_broker(run: Run) -> None:
    await run.ask_each(describe((BROKER, "1", OF_BROKERS)), 1, 4)
    await run.ask(describe((BROKER, "1", OF_BROKERS), synonyms=True), 4, "synonyms")


@scenario("DescribeConfigs")
async def the_clusters_defaults(run: Run) -> None:
    await run.ask_each(describe((BROKER, "")), 1, 4)
    await run.ask(describe((BROKER, ""), synonyms=True), 4, "synonyms")


@scenario("DescribeConfigs")
async def several_resources(run: Run) -> None:
    one, two = await run.topic("one", retention_ms=1), await run.topic("two")
    await run.ask(
        describe(
            (TOPIC, two, SHOWN),
            (BROKER, "1", OF_BROKERS),
            (TOPIC, run.name("nowhere")),
            (TOPIC, one, SHOWN),
        ),
        4,
    )
    await run.ask(describe((TOPIC, one, SHOWN), (TOPIC, one, SHOWN)), 4, "one twice")
    await run.ask_each(describe(), 1, 4, note="none")


@scenario("DescribeConfigs")
async def a_group(run: Run) -> None:
    await run.ask(describe((GROUP, run.name("group"))), 4)
