"""aiokafka's admin client. It speaks old versions of the protocol, which is what it is here for."""

from __future__ import annotations

from typing import Any

import aiokafka
from aiokafka.admin import NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from tests.foreign.clients.aiokafka_help import (
    administering,
    consuming,
    played,
    read,
    refusal,
    take,
    until,
    write,
)
from tests.foreign.scene import Feature, Scene, equal, true


async def _count(client: Any, topic: str) -> int | None:
    """Partitions of a topic, None for one that isn't there; asking doesn't make it."""
    for one in await client.describe_topics():
        if one["topic"] == topic and not one["error_code"]:
            return len(one["partitions"])
    return None


async def _until_count(client: Any, topic: str, count: int | None) -> None:
    async def look() -> bool:
        return await _count(client, topic) == count

    await until(look, f"{count} partitions of {topic}")


@played
async def cluster_describe(scene: Scene) -> object:
    """Brokers, controller, cluster id."""
    async with administering(scene) as client:
        found = await client.describe_cluster()
    ids = {one["node_id"] for one in found["brokers"]}
    equal(len(ids), scene.brokers, "brokers")
    true(found["controller_id"] in ids, "a controller among them")
    return [sorted(found), [one["rack"] for one in found["brokers"]][:1]]


@played
async def topics_create(scene: Scene) -> object:
    """With counts and configs, by assignment, only validated."""
    plain, assigned, tried = scene.name("plain"), scene.name("assigned"), scene.name("tried")
    async with administering(scene) as client:
        new = NewTopic(plain, 3, scene.replicas, topic_configs={"retention.ms": "123456"})
        done = await client.create_topics([new])
        node = (await client.describe_cluster())["brokers"][0]["node_id"]
        await client.create_topics([NewTopic(assigned, -1, -1, {0: [node], 1: [node]})])
        await client.create_topics([NewTopic(tried, 1, 1)], validate_only=True)
        await _until_count(client, plain, 3)
        await _until_count(client, assigned, 2)
        equal(await _count(client, tried), None)
    return [one[1:] for one in done.topic_errors]


@played
async def topics_refuse(scene: Scene) -> object:
    """Each with its code."""
    taken = scene.topic("taken")
    tries = [
        NewTopic(taken, 1, 1),
        NewTopic("no/such name", 1, 1),
        NewTopic("foreign-none", 0, 1),
        NewTopic("foreign-many", 1, 17),
        NewTopic("foreign-config", 1, 1, topic_configs={"no.such": "1"}),
        NewTopic("foreign-value", 1, 1, topic_configs={"retention.ms": "soon"}),
        NewTopic("foreign-node", -1, -1, {0: [4711]}),
    ]
    async with administering(scene) as client:
        reported = [(await client.create_topics([new])).topic_errors[0][1] for new in tries]
    equal(reported, [36, 17, 37, 38, 40, 40, 39])
    return reported


@played
async def topics_list(scene: Scene) -> object:
    """All of them."""
    topic = scene.topic("list", 2)
    async with administering(scene) as client:
        true(topic in await client.list_topics(), "the topic among all")
    return None


@played
async def topics_describe(scene: Scene) -> object:
    """Leaders, replicas, those in sync."""
    topic = scene.topic("describe", 3)
    async with administering(scene) as client:
        (found,) = await client.describe_topics([topic])
    for one in found["partitions"]:
        equal([len(one["replicas"]), len(one["isr"])], [scene.replicas] * 2)
        true(one["leader"] in one["replicas"], "a leader among the replicas")
    return [sorted(found), sorted(found["partitions"][0])]


@played
async def topics_grow(scene: Scene) -> object:
    """Up, down, and the unknown."""
    topic = scene.topic("grow", 2)
    async with administering(scene) as client:
        await client.create_partitions({topic: NewPartitions(4)})
        await _until_count(client, topic, 4)
        down = await refusal(client.create_partitions({topic: NewPartitions(3)}), KafkaError)
        missing = await refusal(
            client.create_partitions({"foreign-missing": NewPartitions(3)}), KafkaError
        )
    await write(scene, topic, [b"new"], partition=3)
    equal([m.value for m in await read(scene, topic, 1, 4)], [b"new"])
    return [type(down).__name__, type(missing).__name__]


@played
async def topics_delete(scene: Scene) -> object:
    """Once, and again."""
    topic = scene.topic("delete")
    async with administering(scene) as client:
        done = await client.delete_topics([topic])
        await _until_count(client, topic, None)
        again = await client.delete_topics([topic])
    codes = [done.topic_error_codes[0][1], again.topic_error_codes[0][1]]
    equal(codes, [0, 3])
    return codes


def _topic(name: str, configs: dict[str, str] | None = None) -> ConfigResource:
    return ConfigResource(ConfigResourceType.TOPIC, name, configs)


async def _configs(client: Any, resource: ConfigResource) -> tuple[int, dict[str, Any]]:
    (answer,) = await client.describe_configs([resource], include_synonyms=True)
    ((code, _, _, _, entries),) = answer.resources
    return code, {entry[0]: entry for entry in entries}


@played
async def configs_describe(scene: Scene) -> object:
    """Of a topic and a broker, and only those that are asked for."""
    topic = scene.topic("configs", retention_ms=5000, cleanup_policy="compact")
    async with administering(scene) as client:
        _, found = await _configs(client, _topic(topic))
        _, one = await _configs(client, _topic(topic, {"retention.ms": ""}))
        node = str((await client.describe_cluster())["brokers"][0]["node_id"])
        _, broker = await _configs(client, ConfigResource(ConfigResourceType.BROKER, node))
        code, _ = await _configs(client, _topic("foreign-none"))
    equal(sorted(one), ["retention.ms"])
    equal(code, 3)
    return {
        "topic": [found[name] for name in ("retention.ms", "max.message.bytes", "flush.ms")],
        "broker": [broker[name] for name in ("num.io.threads", "message.max.bytes")],
    }


@played
async def configs_alter(scene: Scene) -> object:
    """By the older way, which replaces all."""
    topic = scene.topic("alter", max_message_bytes=2000)
    async with administering(scene) as client:
        await client.alter_configs([_topic(topic, {"retention.ms": "7000"})])

        async def look() -> bool:
            _, found = await _configs(client, _topic(topic))
            now = [found["retention.ms"][1], found["max.message.bytes"][1]]
            return now == ["7000", "1048588"]

        await until(look, "retention.ms set and the other as it was at first")
        tries = [_topic(topic, {"no.such": "1"}), _topic("foreign-none", {"retention.ms": "1"})]
        answers = [(await client.alter_configs([one]))[0].resources[0] for one in tries]
    return [one[0] for one in answers]


@played
async def configs_broker(scene: Scene) -> object:
    """Of one broker: set, and back."""
    async with administering(scene) as client:
        node = str((await client.describe_cluster())["brokers"][0]["node_id"])

        async def alter(configs: dict[str, str]) -> str:
            where = ConfigResource(ConfigResourceType.BROKER, node, configs)
            answers = await client.alter_configs([where])
            return str([list(one)[:2] for one in answers[-1].resources])

        async def value() -> str:
            where = ConfigResource(ConfigResourceType.BROKER, node)
            return str((await _configs(client, where))[1]["message.max.bytes"][1])

        seen = await alter({"message.max.bytes": "1200000"})

        async def changed() -> bool:
            return await value() == "1200000"

        await until(changed, "message.max.bytes set")
        await alter({})

        async def back() -> bool:
            return await value() == "1048588"

        await until(back, "message.max.bytes as it was")
    return seen


@played
async def records_delete(scene: Scene) -> object:
    """To an offset, beyond the end."""
    topic = scene.topic("records")
    await write(scene, topic, [b"%d" % n for n in range(10)])
    where = aiokafka.TopicPartition(topic, 0)
    async with administering(scene) as client:
        some = await client.delete_records({where: RecordsToDelete(4)})
        beyond = await refusal(client.delete_records({where: RecordsToDelete(11)}), KafkaError)
    equal(some, {where: 4})
    equal((await read(scene, topic, 1, auto_offset_reset="earliest"))[0].offset, 4)
    return str(beyond)


async def _emptied(scene: Scene, stem: str) -> tuple[str, str]:
    """A topic and a group that read it, committed and left."""
    topic, group = scene.topic(stem), scene.name(stem)
    await write(scene, topic, [b"%d" % n for n in range(10)])
    async with consuming(scene, topic, group_id=group, auto_offset_reset="earliest") as member:
        await take(member, 10)
        await member.commit()
    return topic, group


@played
async def groups_list(scene: Scene) -> object:
    """All of them."""
    _, group = await _emptied(scene, "listed")
    async with administering(scene) as client:
        found = {one[0]: one[1:] for one in await client.list_consumer_groups()}
    true(group in found, "the group among all")
    return found[group]


@played
async def groups_describe(scene: Scene) -> object:
    """A busy one, an empty one, an unknown one."""
    topic, empty = await _emptied(scene, "described")
    busy = scene.name("busy")
    settings = {"group_id": busy, "auto_offset_reset": "earliest", "client_id": "somebody"}
    async with consuming(scene, topic, **settings) as member:
        await take(member, 10)
        async with administering(scene) as client:
            seen = {}
            for name, group in (("busy", busy), ("empty", empty), ("none", "foreign-missing")):
                (answer,) = await client.describe_consumer_groups([group])
                (found,) = answer.groups
                code, _, state, kind, protocol, members = found[:6]
                seen[name] = [code, state, kind, protocol, [one[-4:-2] for one in members]]
    equal([one[1] for one in seen.values()], ["Stable", "Empty", "Dead"])
    return seen


@played
async def groups_offsets(scene: Scene) -> object:
    """Listed: all, and chosen ones."""
    topic, group = await _emptied(scene, "offsets")
    chosen = [aiokafka.TopicPartition(topic, 0), aiokafka.TopicPartition(topic, 7)]
    async with administering(scene) as client:
        every = await client.list_consumer_group_offsets(group)
        some = await client.list_consumer_group_offsets(group, partitions=chosen)
    equal({one.partition: two.offset for one, two in every.items()}, {0: 10})
    equal({one.partition: two.offset for one, two in some.items()}, {0: 10, 7: -1})
    return [list(one) for one in some.values()]


PLAYED: tuple[Feature, ...] = (
    cluster_describe,
    topics_create,
    topics_refuse,
    topics_list,
    topics_describe,
    topics_grow,
    topics_delete,
    configs_describe,
    configs_alter,
    configs_broker,
    records_delete,
    groups_list,
    groups_describe,
    groups_offsets,
)
