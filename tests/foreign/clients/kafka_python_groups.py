"""kafka-python in classic groups, and its admin client on groups."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import KafkaError

from tests.foreign.clients.kafka_python_help import administering, consuming, take, write
from tests.foreign.scene import PATIENCE, Feature, Scene, equal, refusal, true, until
from tests.interop.peers.kafka_python_peer import kafka


class Member(kafka.ConsumerRebalanceListener):
    """A consumer of a group, polled by a thread of its own until it is stopped."""

    def __init__(self, scene: Scene, group: str, topic: str, **settings: Any) -> None:
        self._partitions: set[int] = set()
        self.values: list[int] = []
        self.steps: list[tuple[str, int]] = []
        self.errors: list[str] = []
        self._settings = {
            "group_id": group,
            "auto_offset_reset": "earliest",
            "heartbeat_interval_ms": 200,
            "session_timeout_ms": 10_000,
            **settings,
        }
        self._scene, self._topic = scene, topic
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
        equal(self.errors, [])

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        """kafka-python calls it."""
        new = {one.partition for one in assigned}
        self.steps.append(("assigned", len(new)))
        self._partitions = self._partitions | new

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        """kafka-python calls it."""
        gone = {one.partition for one in revoked}
        self.steps.append(("revoked", len(gone)))
        self._partitions = self._partitions - gone

    def _run(self) -> None:
        try:
            with consuming(self._scene, **self._settings) as self._made:
                self._made.subscribe([self._topic], listener=self)
                while not self._stopping:
                    # A poll that ends within a rejoin for new metadata would forget its outcome.
                    found = self._made.poll(timeout_ms=50 if self._partitions else 1000)
                    if found:
                        self._made.commit()  # not in the listener: its loop can't wait for itself
                    for records in found.values():
                        self.values.extend(int(one.value) for one in records)
        except Exception as error:
            self.errors.append(f"{type(error).__name__}: {error}")


def groups_commit(scene: Scene) -> object:
    """The second member goes on where the first one committed."""
    topic, group = scene.topic("commit"), scene.name("group")
    write(scene, topic, [b"%d" % n for n in range(20)])
    where = kafka.TopicPartition(topic, 0)
    settings = {"group_id": group, "auto_offset_reset": "earliest"}
    with consuming(scene, topic, **settings) as first:
        equal([int(m.value) for m in take(first, 8)], list(range(8)))
        equal(first.committed(where), None, "committed before")
        first.commit({where: kafka.OffsetAndMetadata(8, "halfway", -1)})
        equal(list(first.committed(where, metadata=True))[:2], [8, "halfway"])
        reported: list[object] = []
        first.commit_async(callback=lambda offsets, answer: reported.append(answer))
        until(lambda: first.poll(timeout_ms=20) is not None and reported, "the answer to a commit")
        other = {kafka.TopicPartition(topic, 7): kafka.OffsetAndMetadata(1, "", -1)}
        missing = type(refusal(lambda: first.commit(other, timeout_ms=3000), KafkaError)).__name__
        first.commit({where: kafka.OffsetAndMetadata(8, "", -1)})
    with consuming(scene, topic, **settings) as second:
        equal([int(m.value) for m in take(second, 12)], list(range(8, 20)))
    return {"missing partition": missing, "callback": isinstance(reported[0], Exception)}


def _two_members(scene: Scene, stem: str, **settings: Any) -> Any:
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
    return first.steps


def groups_rebalance(scene: Scene) -> object:
    """An eager group, by range and round robin."""
    for stem, assignor in (
        ("range", RangePartitionAssignor),
        ("turn", RoundRobinPartitionAssignor),
    ):
        steps = _two_members(scene, stem, partition_assignment_strategy=[assignor])
        true(("revoked", 4) in steps, f"all four given up for a while: {steps}")
    return "range, roundrobin"


def groups_cooperative(scene: Scene) -> object:
    """Each keeps what it has."""
    steps = _two_members(
        scene, "cooperative", partition_assignment_strategy=[CooperativeStickyAssignor]
    )
    given = [count for how, count in steps if how == "revoked" and count]
    equal(given[:1], [2], "partitions given up, of four")
    return given[:1]


def groups_static(scene: Scene) -> object:
    """A member that is back under its instance id has what it had; the admin removes it."""
    topic, group = scene.topic("static", 4), scene.name("static")

    def member(instance: str) -> Member:
        return Member(scene, group, topic, group_instance_id=instance)

    first = member("one")
    until(lambda: len(first.partitions) == 4, "all with the first member")
    second = member("two")
    until(lambda: len(first.partitions) == len(second.partitions) == 2, "two partitions each")
    had, steps = second.partitions, list(first.steps)
    second.stop()
    second = member("two")
    until(lambda: second.partitions == had, "what it had before")
    equal(first.steps, steps, "steps of the other member")
    with administering(scene) as client:
        members = client.describe_groups([group])[group]["members"]
        equal(sorted(one["group_instance_id"] for one in members), ["one", "two"])
        first.stop()
        second.stop()
        left = client.describe_groups([group])[group]
        stay = sorted(one["group_instance_id"] for one in left["members"])
        gone = client.remove_group_members(
            group,
            [
                kafka.admin.MemberToRemove(group_instance_id=instance)
                for instance in (*stay, "nobody")
            ],
        )
        until(lambda: client.describe_groups([group])[group]["group_state"] == "Empty", "empty")
    return {"stay": stay, "removed": sorted(error.__name__ for error in gone.values())}


def _emptied(scene: Scene, stem: str) -> tuple[str, str]:
    """A topic and a group that read it, committed and left."""
    topic, group = scene.topic(stem), scene.name(stem)
    write(scene, topic, [b"%d" % n for n in range(10)])
    with consuming(scene, topic, group_id=group, auto_offset_reset="earliest") as member:
        take(member, 10)
        member.commit()
    return topic, group


def _with_busy(scene: Scene, topic: str, play: Callable[[str], Any]) -> Any:
    """Play something while a group has a member."""
    busy = scene.name("busy")
    member = Member(scene, busy, topic, client_id="somebody")
    until(lambda: member.partitions, "a busy group")
    try:
        return play(busy)
    finally:
        member.stop()


def groups_list(scene: Scene) -> object:
    """All, by state, by type."""
    topic, empty = _emptied(scene, "listed")

    def look(busy: str) -> object:
        with administering(scene) as client:
            found = {one["group_id"]: one for one in client.list_groups()}
            by_state = {one["group_id"] for one in client.list_groups(states_filter=["Empty"])}
            classic = {one["group_id"] for one in client.list_groups(types_filter=["classic"])}
            other = {one["group_id"] for one in client.list_groups(types_filter=["consumer"])}
        true(empty in by_state and busy not in by_state, "only the empty ones")
        true({empty, busy} <= classic and not {empty, busy} & other, "the classic ones")
        return {
            name: {**found[group], "group_id": ""}
            for name, group in (("empty", empty), ("busy", busy))
        }

    return _with_busy(scene, topic, look)


def groups_describe(scene: Scene) -> object:
    """A busy one, an empty one, an unknown one."""
    topic, empty = _emptied(scene, "described")

    def look(busy: str) -> object:
        with administering(scene) as client:
            found = client.describe_groups([busy])[busy]
            members = found.pop("members")
            none = client.describe_groups([empty])[empty]
            missing = client.describe_groups(["foreign-missing"])["foreign-missing"]
        (one,) = members
        equal(one.pop("member_id").partition("-")[0], "somebody")
        return {
            "busy": {**found, "group_id": ""},
            "member": {name: str(what).replace(topic, "TOPIC") for name, what in one.items()},
            "empty": {**none, "group_id": ""},
            "missing": missing,
        }

    return _with_busy(scene, topic, look)


def groups_offsets(scene: Scene) -> object:
    """Listed, altered, reset, deleted."""
    topic, group = _emptied(scene, "offsets")
    where, other = kafka.TopicPartition(topic, 0), kafka.TopicPartition(topic, 7)
    with administering(scene) as client:

        def offset() -> int:
            return int(client.list_group_offsets(group)[group][where].offset)

        equal(offset(), 10)
        both = client.list_group_offsets({group: [where, other], "foreign-missing": [where]})
        altered = client.alter_group_offsets(
            group,
            {
                where: kafka.OffsetAndMetadata(3, "back", -1),
                other: kafka.OffsetAndMetadata(3, "", -1),
            },
        )
        equal(offset(), 3)
        reset = client.reset_group_offsets(group, {where: kafka.admin.OffsetSpec.EARLIEST})
        equal([offset(), reset[where]["offset"]], [0, 0])
        client.reset_group_offsets(group, {where: 6})
        deleted = client.delete_group_offsets(group, [where, other])
        left = client.list_group_offsets(group)[group]
        again = client.alter_group_offsets(group, {where: kafka.OffsetAndMetadata(3, "", -1)})
        unknown = refusal(
            lambda: client.delete_group_offsets("foreign-missing", [where]), KafkaError
        )

        def busy_ones(busy: str) -> object:
            moved = client.alter_group_offsets(busy, {where: kafka.OffsetAndMetadata(3, "", -1)})
            gone = client.delete_group_offsets(busy, [where])
            return [moved[where].__name__, gone[where].__name__]

        busy = _with_busy(scene, topic, busy_ones)
    equal(left, {}, "offsets left")
    return {
        "listed": [list(one) for one in both[group].values()],
        "of nobody": [list(one) for one in both["foreign-missing"].values()],
        "altered": [one.__name__ for one in altered.values()],
        "deleted": [one.__name__ for one in deleted.values()],
        "again": [one.__name__ for one in again.values()],
        "unknown": type(unknown).__name__,
        "busy": busy,
    }


def groups_delete(scene: Scene) -> object:
    """An empty one, a busy one, an unknown one."""
    topic, group = _emptied(scene, "deleted")
    with administering(scene) as client:
        equal(client.delete_groups([group]), {group: "OK"})
        until(lambda: group not in {one["group_id"] for one in client.list_groups()}, "it is gone")
        again = client.delete_groups([group])[group]
        busy = _with_busy(scene, topic, lambda busy: client.delete_groups([busy])[busy])
    equal([again, busy], ["GroupIdNotFoundError", "NonEmptyGroupError"])
    return [again, busy]


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
