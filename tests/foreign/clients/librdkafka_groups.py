"""librdkafka in classic groups, and its admin client on groups."""

from __future__ import annotations

import threading
import time
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)

from tests.foreign.clients.librdkafka_admin import admin, only, refused
from tests.foreign.clients.librdkafka_help import code_of, consumer, take, write
from tests.foreign.scene import PATIENCE, Feature, Scene, equal, refusal, true, until


class Member:
    """A consumer of a group, polled by a thread of its own until it is stopped."""

    def __init__(self, scene: Scene, group: str, topic: str, **settings: Any) -> None:
        self._partitions: set[int] = set()
        self.values: list[int] = []
        self.steps: list[tuple[str, tuple[int, ...]]] = []
        self.member_id = ""
        self.errors: list[str] = []
        self._made = consumer(
            scene,
            **{
                "group.id": group,
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 200,
                "session.timeout.ms": 10_000,
                **settings,
            },
        )
        self._made.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def partitions(self) -> set[int]:
        """What it has; an AssertionError if it failed."""
        equal(self.errors, [], "errors of the member")
        return self._partitions

    def stop(self) -> None:
        """Leave the group."""
        self._stopping = True
        self._thread.join(PATIENCE)
        true(not self._thread.is_alive(), "the member stopped")
        self._made.close()
        equal(self.errors, [])

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        new = tuple(sorted(one.partition for one in partitions))
        self.steps.append(("assigned", new))
        self._partitions = self._partitions | set(new)
        self.member_id = str(self._made.memberid())

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        gone = tuple(sorted(one.partition for one in partitions))
        self.steps.append(("revoked", gone))
        self._partitions = self._partitions - set(gone)
        if self.values:
            self._commit()

    def _commit(self) -> None:
        try:
            self._made.commit(asynchronous=False)
        except KafkaException as error:
            if code_of(error) != "_NO_OFFSET":
                self.errors.append(str(error))

    def _run(self) -> None:
        while not self._stopping:
            message = self._made.poll(0.05)
            if message is None:
                continue
            if message.error() is not None:
                self.errors.append(str(message.error()))
            else:
                self.values.append(int(message.value()))


def groups_commit(scene: Scene) -> object:
    """The second member goes on where the first one committed."""
    topic, group = scene.topic("commit"), scene.name("group")
    write(scene, topic, [b"%d" % n for n in range(20)])
    first = consumer(scene, **{"group.id": group, "auto.offset.reset": "earliest"})
    first.subscribe([topic])
    equal([int(m.value()) for m in take(first, 8)], list(range(8)))
    where = TopicPartition(topic, 0)
    equal(first.committed([where], timeout=PATIENCE)[0].offset, -1001, "committed before")
    (done,) = first.commit(
        offsets=[TopicPartition(topic, 0, 8, metadata="halfway")], asynchronous=False
    )
    equal([done.offset, done.error], [8, None])
    (back,) = first.committed([where], timeout=PATIENCE)
    equal([back.offset, back.metadata], [8, "halfway"])
    missing = refusal(
        lambda: first.commit(offsets=[TopicPartition(topic, 7, 1)], asynchronous=False),
        KafkaException,
    )
    first.close()
    second = consumer(scene, **{"group.id": group, "auto.offset.reset": "earliest"})
    second.subscribe([topic])
    equal([int(m.value()) for m in take(second, 12)], list(range(8, 20)))
    second.close()
    return {"missing partition": code_of(missing)}


def _two_members(scene: Scene, stem: str, **settings: Any) -> object:
    topic, group = scene.topic(stem, 4), scene.name(stem)
    first = Member(scene, group, topic, **settings)
    until(lambda: first.partitions == {0, 1, 2, 3}, "all partitions with the first member")
    second = Member(scene, group, topic, **settings)
    until(lambda: len(first.partitions) == len(second.partitions) == 2, "two partitions each")
    equal(first.partitions | second.partitions, {0, 1, 2, 3})
    for partition in range(4):
        write(scene, topic, [b"%d" % (partition * 10 + n) for n in range(5)], partition=partition)
    everything = sorted(p * 10 + n for p in range(4) for n in range(5))
    until(lambda: sorted(first.values + second.values) == everything, "all records, once each")
    second.stop()
    until(lambda: first.partitions == {0, 1, 2, 3}, "all partitions with the first member again")
    first.stop()
    return {
        "first": [how for how, _ in first.steps],
        "sizes": [len(what) for _, what in first.steps],
    }


def groups_rebalance(scene: Scene) -> object:
    """An eager group, by range and round robin."""
    return [
        _two_members(scene, "range", **{"partition.assignment.strategy": "range"}),
        _two_members(scene, "turn", **{"partition.assignment.strategy": "roundrobin"}),
    ]


def groups_cooperative(scene: Scene) -> object:
    """Each keeps what it has."""
    seen = _two_members(
        scene, "cooperative", **{"partition.assignment.strategy": "cooperative-sticky"}
    )
    equal(seen["sizes"][1:2], [2], "partitions given up, of four")
    return seen


def groups_static(scene: Scene) -> object:
    """A member that comes back under its instance id keeps its partitions; none move."""
    topic, group = scene.topic("static", 4), scene.name("static")

    def member(instance: str) -> Member:
        return Member(scene, group, topic, **{"group.instance.id": instance})

    first = member("one")
    until(lambda: len(first.partitions) == 4, "all with the first member")
    second = member("two")
    until(lambda: len(first.partitions) == len(second.partitions) == 2, "two partitions each")
    had, steps = second.partitions, list(first.steps)
    second.stop()  # a static member does not leave
    again = member("two")
    until(lambda: again.partitions == had, "what it had before")
    time.sleep(1.0)
    equal(first.steps, steps, "steps of the other member")
    described = only(admin(scene).describe_consumer_groups([group]))
    names = sorted(one.group_instance_id for one in described.members)
    equal(names, ["one", "two"])
    usurper = member("one")  # the later member gets the instance id
    until(lambda: first.errors, "the first member is fenced")
    fenced, first.errors = first.errors[0], []
    first.stop()
    usurper.stop()
    again.stop()
    return {"members": names, "fenced": fenced.partition(" ")[0]}


def _emptied(scene: Scene, stem: str) -> tuple[str, str]:
    """A topic and a group that read it, committed and left."""
    topic, group = scene.topic(stem), scene.name(stem)
    write(scene, topic, [b"%d" % n for n in range(10)])
    member = consumer(scene, **{"group.id": group, "auto.offset.reset": "earliest"})
    member.subscribe([topic])
    take(member, 10)
    member.commit(asynchronous=False)
    member.close()
    return topic, group


def _listed(scene: Scene, **filters: Any) -> dict[str, Any]:
    found = admin(scene).list_consumer_groups(**filters).result(PATIENCE)
    equal(found.errors, [])
    return {one.group_id: one for one in found.valid}


def groups_list(scene: Scene) -> object:
    """All, and those of a state."""
    topic, empty = _emptied(scene, "listed")
    busy = scene.name("busy")
    member = Member(scene, busy, topic)
    until(lambda: member.partitions, "a busy group")
    found = _listed(scene)
    seen = {
        name: [found[group].state.name, found[group].is_simple_consumer_group]
        for name, group in (("empty", empty), ("busy", busy))
    }
    by_state = _listed(scene, states={ConsumerGroupState.EMPTY})
    true(empty in by_state and busy not in by_state, "only the empty ones")
    old = {one.id: one for one in admin(scene).list_groups(timeout=PATIENCE)}
    seen["old"] = [old[busy].state, old[busy].protocol_type, old[busy].protocol]
    member.stop()
    equal([seen["empty"][0], seen["busy"][0]], ["EMPTY", "STABLE"])
    return seen


def groups_describe(scene: Scene) -> object:
    """A busy one, an empty one, an unknown one."""
    topic, empty = _emptied(scene, "described")
    busy = scene.name("busy")
    member = Member(scene, busy, topic, **{"client.id": "somebody"})
    until(lambda: member.partitions, "a busy group")
    client = admin(scene)

    def describe(group: str) -> Any:
        return only(client.describe_consumer_groups([group], include_authorized_operations=True))

    found = describe(busy)
    (one,) = found.members
    equal(one.member_id, member.member_id)
    equal([p.partition for p in one.assignment.topic_partitions], [0])
    seen: dict[str, object] = {
        "busy": [found.state.name, found.partition_assignor, found.type.name],
        "member": [one.client_id, one.host, one.group_instance_id],
        "operations": sorted(o.name for o in found.authorized_operations),
    }
    true(found.coordinator.host and found.coordinator.port, "the coordinator's address")
    member.stop()
    found = describe(empty)
    seen["empty"] = [found.state.name, found.partition_assignor, len(found.members)]
    missing = scene.name("missing")
    try:
        found = describe(missing)
        seen["missing"] = [found.state.name, len(found.members)]
    except KafkaException as error:
        seen["missing"] = [code_of(error), error.args[0].str().replace(missing, "MISSING")]
    return seen


def groups_offsets(scene: Scene) -> object:
    """Listed and altered."""
    topic, group = _emptied(scene, "offsets")
    client = admin(scene)

    def listed(*partitions: TopicPartition) -> list[list[object]]:
        asked = ConsumerGroupTopicPartitions(group, list(partitions) or None)
        found = only(client.list_consumer_group_offsets([asked])).topic_partitions
        return [[one.partition, one.offset, one.metadata] for one in found]

    def alter(*partitions: TopicPartition) -> list[list[object]]:
        asked = ConsumerGroupTopicPartitions(group, list(partitions))
        found = only(client.alter_consumer_group_offsets([asked])).topic_partitions
        return [[one.partition, one.error and one.error.name()] for one in found]

    seen: dict[str, object] = {"all": listed(), "none": listed(TopicPartition(topic, 3))}
    equal(seen["all"][0][:2], [0, 10])
    seen["altered"] = alter(TopicPartition(topic, 0, 3, metadata="back"))
    seen["now"] = listed(TopicPartition(topic, 0))
    equal(seen["now"][0][:2], [0, 3])
    seen["missing"] = alter(TopicPartition(topic, 9, 3))
    member = Member(scene, group, topic)
    until(lambda: member.values == [3, 4, 5, 6, 7, 8, 9], "records from the altered offset")
    seen["busy"] = alter(TopicPartition(topic, 0, 1))
    member.stop()
    equal(
        [seen["missing"], seen["busy"]],
        [[[9, "UNKNOWN_TOPIC_OR_PART"]], [[0, "UNKNOWN_MEMBER_ID"]]],
    )
    return seen


def groups_delete(scene: Scene) -> object:
    """An empty one, a busy one, an unknown one."""
    topic, group = _emptied(scene, "deleted")
    client = admin(scene)
    only(client.delete_consumer_groups([group]))
    until(lambda: group not in _listed(scene), "the group is gone")
    busy = scene.name("busy")
    member = Member(scene, busy, topic)
    until(lambda: member.partitions, "a busy group")
    seen = {
        "busy": refused(lambda: client.delete_consumer_groups([busy])),
        "missing": refused(lambda: client.delete_consumer_groups([group])),
    }
    member.stop()
    equal(seen["busy"], "NON_EMPTY_GROUP")
    equal(seen["missing"], "GROUP_ID_NOT_FOUND")
    return seen


PLAYED: tuple[Feature, ...] = (
    groups_commit,
    groups_rebalance,
    groups_cooperative,
    groups_static,
    groups_list,
    groups_describe,
    groups_offsets,
    groups_delete,
)
