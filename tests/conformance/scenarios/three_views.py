"""Three brokers: what each reports of the cluster, and which of them serve which request."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.api_versions import ApiVersionsRequest
from kclient.protocol.messages.describe_cluster import DescribeClusterRequest
from kclient.protocol.messages.init_producer_id import InitProducerIdRequest
from kclient.protocol.messages.metadata import MetadataRequest
from tests.conformance.run import Run, until
from tests.conformance.scenario import scenario
from tests.conformance.scenarios.alter_configs import SET, change
from tests.conformance.scenarios.create_partitions import grow
from tests.conformance.scenarios.create_topics import create, spec
from tests.conformance.scenarios.delete_topics import by_name as delete
from tests.conformance.scenarios.describe_configs import BROKER, OF_BROKERS, TOPIC
from tests.conformance.scenarios.describe_configs import describe as describe_configs
from tests.conformance.scenarios.describe_log_dirs import of as log_dirs_of
from tests.conformance.scenarios.describe_topic_partitions import describe
from tests.conformance.scenarios.metadata import by_id, by_name

SPREAD = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
"""Three partitions, each with another leader."""


async def ask_all(run: Run, request: object, version: int) -> None:
    """Send the same request to each broker."""
    for node in run.up:
        await run.ask(request, version, f"broker {node}", node=node)  # type: ignore[arg-type]


@scenario("Metadata", nodes=3)
async def each_broker_reports_topics(run: Run) -> None:
    topic = await run.topic(replicas=SPREAD)
    for version in (4, 5, 9, 12):
        await ask_all(run, by_name(topic), version)


@scenario("Metadata", nodes=3)
async def each_broker_reports_ids(run: Run) -> None:
    topic = await run.topic(replicas=[[2, 1]])
    await ask_all(run, by_id(await run.topic_id(topic)), 13)


@scenario("Metadata", nodes=3)
async def each_broker_reports_brokers(run: Run) -> None:
    await ask_all(run, MetadataRequest([]), 12)


@scenario("DescribeCluster", nodes=3)
async def each_broker_reports_the_cluster(run: Run) -> None:
    for version in (0, 2):
        await ask_all(run, DescribeClusterRequest(), version)


@scenario("DescribeTopicPartitions", nodes=3)
async def each_broker_reports_partitions(run: Run) -> None:
    topic = await run.topic(replicas=SPREAD)
    await ask_all(run, describe(topic), 0)
    await run.ask(describe(topic, limit=2), 0, "a page")


@scenario("ApiVersions", nodes=3)
async def each_broker_reports_versions(run: Run) -> None:
    await ask_all(run, ApiVersionsRequest("conformance", "1"), 4)


@scenario("InitProducerId", nodes=3)
async def each_broker_gives_ids_of_its_own(run: Run) -> None:
    wanted = InitProducerIdRequest(None, 60_000)
    for node in run.up:

        async def has_ids(node: int = node) -> bool:
            return not (await run.quietly(wanted, 4, node=node)).error_code

        await until(has_ids)
    await ask_all(run, wanted, 4)


@scenario("CreateTopics", nodes=3)
async def any_broker_creates_topics(run: Run) -> None:
    for node in run.up:
        assigned = [(0, [node, node % 3 + 1])]
        asked = create(spec(run.name(f"by{node}"), -1, -1, assigned))
        await run.ask(asked, 7, f"broker {node}", node=node)
        await run.wait_led(run.name(f"by{node}"))
        await run.ask(by_name(run.name(f"by{node}")), 12)


@scenario("CreateTopics", nodes=3)
async def default_counts(run: Run) -> None:
    await run.ask(create(spec(run.name("all"), -1, -1)), 7)
    for factor in (1, 2, 3):
        await run.ask(create(spec(run.name(f"r{factor}"), 2, factor)), 7, f"factor {factor}")


@scenario("CreateTopics", ErrorCode.INVALID_REPLICATION_FACTOR, nodes=3)
async def more_replicas_than_brokers(run: Run) -> None:
    await run.ask(create(spec(run.name("t"), 1, 4)), 7)
    await run.ask(create(spec(run.name("t"), 1, 4)), 4)


@scenario("CreateTopics", ErrorCode.INVALID_REPLICA_ASSIGNMENT, nodes=3)
async def replicas_that_can_not_be(run: Run) -> None:
    for note, assigned in {
        "another number": [(0, [1, 2]), (1, [2])],
        "twice": [(0, [1, 2, 1])],
        "unknown": [(0, [1, 4])],
        "unknown and twice": [(0, [4, 4])],
        "none": [(0, [1]), (1, [])],
    }.items():
        await run.ask(create(spec(run.name("t"), -1, -1, assigned)), 7, note)


@scenario("CreatePartitions", ErrorCode.INVALID_REPLICA_ASSIGNMENT, nodes=3)
async def partitions_with_their_replicas(run: Run) -> None:
    topic = await run.topic(replicas=[[1, 2]])
    await run.ask(grow((topic, 2, [[1, 2, 3]])), 3, "too many replicas")
    await run.ask(grow((topic, 2, [[3]])), 3, "too few replicas")
    await run.ask(grow((topic, 2, [[3, 4]])), 3, "an unknown one")
    await run.ask(grow((topic, 3, [[3, 2], [2, 1]])), 3, "good", node=2)
    for node in run.up:
        await run.wait_led(topic, partitions=3, node=node)
    await run.ask(by_name(topic), 12, node=3)


@scenario("DeleteTopics", nodes=3)
async def any_broker_deletes_topics(run: Run) -> None:
    topic = await run.topic(replicas=[[1, 2]])
    await run.ask(delete(topic), 5, node=3)
    await run.wait_gone(topic)
    await run.ask(by_name(topic), 12)


@scenario("DescribeConfigs", ErrorCode.INVALID_REQUEST, nodes=3)
async def configs_of_brokers_are_asked_of_themselves(run: Run) -> None:
    for node in run.up:
        await run.ask(describe_configs((BROKER, "2", OF_BROKERS)), 4, f"broker {node}", node=node)


@scenario("DescribeConfigs", nodes=3)
async def configs_of_topics_are_asked_of_anybody(run: Run) -> None:
    topic = await run.topic(replicas=[[1]], retention_ms=1000)
    await ask_all(run, describe_configs((TOPIC, topic, ["retention.ms", "segment.ms"])), 4)


@scenario("IncrementalAlterConfigs", nodes=3)
async def configs_are_altered_by_anybody(run: Run) -> None:
    topic = await run.topic(replicas=[[1, 2]])
    for node in run.up:
        asked = change((TOPIC, topic, [("retention.ms", SET, f"{node}000")]))
        await run.ask(asked, 1, f"broker {node}", node=node)


@scenario("DescribeLogDirs", nodes=3)
async def each_broker_reports_its_own_replicas(run: Run) -> None:
    topic = await run.topic(replicas=[[1, 2], [3, 1]])
    await ask_all(run, log_dirs_of((topic, [0, 1])), 4)
