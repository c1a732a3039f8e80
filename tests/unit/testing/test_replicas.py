"""All replicas of one broker: which it has, leadership changes, and its ISR requests."""

from __future__ import annotations

from dataclasses import replace

from kclient.testing.image import MetadataImage
from kclient.testing.log import ENDLESS_BYTES
from kclient.testing.replica import Replica
from kclient.testing.replicas import LeadershipChange, Replicas
from tests.unit.testing.batches import stored
from tests.unit.testing.images import add, cluster

LAG = 30.0


class Scene:
    """One broker's replicas and its image."""

    def __init__(self, node_id: int = 1) -> None:
        self.image = cluster()
        self.replicas = Replicas(node_id, self.image)
        self.heard: list[LeadershipChange] = []
        self.replicas.listeners.append(self.heard.append)

    def apply(self, image: MetadataImage, now: float = 0.0) -> list[LeadershipChange]:
        self.image = image
        return self.replicas.apply(image, now)

    def change(
        self, index: int = 0, *, now: float = 0.0, **fields: object
    ) -> list[LeadershipChange]:
        was = self.image.topics["t"].partitions[index]
        facts = replace(was, partition_epoch=was.partition_epoch + 1, **fields)  # type: ignore[arg-type]
        return self.apply(self.image.with_partitions([facts]), now)

    def replica(self, index: int = 0) -> Replica:
        found = self.replicas.get("t", index)
        assert found is not None
        return found

    def append(self, now: float, index: int = 0) -> None:
        self.replica(index).append(stored(), None, now)
        self.replicas.check(self.replica(index))


def test_a_broker_has_copies_of_what_it_is_assigned_only() -> None:
    scene = Scene()
    turns = scene.apply(add(scene.image, "t", [1, 2], [2, 1], [2, 3]))
    assert (
        turns
        == [LeadershipChange("t", 0, True, 0), LeadershipChange("t", 1, False, 0)]
        == scene.heard
    )
    assert scene.replicas.get("t", 2) is None
    assert len(list(scene.replicas)) == 2


def test_what_did_not_change_is_no_leadership_change() -> None:
    scene = Scene()
    scene.apply(add(scene.image, "t", [1, 2], [2, 1]))
    copies = list(scene.replicas)
    assert scene.apply(add(scene.image, "u", [3])) == []
    assert scene.change(isr=(1,)) == []
    assert list(scene.replicas) == copies
    assert scene.replica().facts.isr == (1,)


def test_listeners_are_notified_of_each_leadership_change() -> None:
    scene = Scene()
    scene.apply(add(scene.image, "t", [1, 2]))
    scene.change(leader=2, leader_epoch=1)
    scene.change(leader=1, leader_epoch=2)
    assert scene.heard == [
        LeadershipChange("t", 0, True, 0),
        LeadershipChange("t", 0, False, 1),
        LeadershipChange("t", 0, True, 2),
    ]


def test_a_topic_that_is_deleted_takes_its_copies_and_wakes_readers() -> None:
    scene = Scene()
    scene.apply(add(scene.image, "t", [1, 2], [2, 1]))
    woken: list[int] = []
    scene.replica().log.listen(woken.append)
    turns = scene.apply(scene.image.without_topic(scene.image.topics["t"]))
    assert turns == [LeadershipChange("t", 0, False, 0)]
    assert list(scene.replicas) == []
    assert woken == [ENDLESS_BYTES]


def test_waiters_for_a_deleted_topic_find_that_it_is_deleted() -> None:
    scene = Scene()
    scene.apply(add(scene.image, "t", [1, 2], [2, 1]))
    copies = list(scene.replicas)
    found: list[bool] = []
    copies[0].log.listen(lambda _: found.append(copies[0].is_deleted))
    scene.apply(scene.image.without_topic(scene.image.topics["t"]))
    assert found == [True]
    assert [(one.is_deleted, one.leads) for one in copies] == [(True, False)] * 2


def test_a_leadership_change_wakes_readers_once() -> None:
    scene = Scene()
    scene.apply(add(scene.image, "t", [1, 2]))
    woken: list[int] = []
    scene.replica().log.listen(woken.append)
    scene.change(leader=2, leader_epoch=1)
    scene.apply(add(scene.image, "u", [1]))
    assert woken == [ENDLESS_BYTES]


def test_a_topic_that_was_recreated_unseen_has_empty_logs() -> None:
    scene = Scene()
    scene.apply(add(scene.image, "t", [1]))
    scene.append(0.0)
    old = scene.image.topics["t"]
    again = replace(old, topic_id=b"2" * 16)
    turns = scene.apply(scene.image.without_topic(old).with_topics(again))
    assert turns == [LeadershipChange("t", 0, False, 0), LeadershipChange("t", 0, True, 0)]
    assert scene.replica().log.end_offset == 0
    assert scene.replica().topic_id == b"2" * 16


def test_a_copy_that_is_no_longer_assigned_goes() -> None:
    scene = Scene()
    scene.apply(add(scene.image, "t", [1, 2]))
    assert scene.change(replicas=(2,), isr=(2,), leader=2, leader_epoch=1) == [
        LeadershipChange("t", 0, False, 0)
    ]
    assert scene.replicas.get("t", 0) is None


def test_an_election_wakes_readers_when_all_of_the_image_is_applied() -> None:
    scene = Scene()
    scene.apply(add(scene.image, "t", [1, 2], [1, 2]))
    seen: list[tuple[int, list[bool]]] = []

    def read(size_bytes: int) -> None:
        seen.append((size_bytes, [one.leads for one in scene.replicas]))

    for index in (0, 1):
        scene.replica(index).log.listen(read)
    partitions = scene.image.topics["t"].partitions
    scene.change(isr=(1,))
    scene.apply(
        scene.image.with_partitions([replace(one, leader=2, leader_epoch=1) for one in partitions])
    )
    assert seen == [(ENDLESS_BYTES, [False, False])] * 2


def test_those_whose_watermark_moved_with_the_image_are_known() -> None:
    scene = Scene()
    scene.apply(add(scene.image, "t", [1, 2], [1, 3], [2, 1]))
    for index in (0, 1):
        scene.append(0.0, index)
    scene.change(isr=(1,))
    assert scene.replicas.changed == scene.replicas.advanced == [scene.replica(0)]
    scene.change(1, last_known_elr=(3,))
    assert (scene.replicas.changed, scene.replicas.advanced) == ([scene.replica(1)], [])


def test_a_broker_that_is_down_leads_nothing_and_notifies_no_listener() -> None:
    scene = Scene()
    scene.apply(add(scene.image, "t", [1, 2], [2, 1]))
    fetch_all(scene, 2)
    scene.append(5.0)
    heard = list(scene.heard)
    scene.replicas.stand_down()
    assert not any(one.leads for one in scene.replicas)
    assert (scene.replicas.next_check(), scene.heard) == (None, heard)
    scene.change(leader_epoch=1)
    assert scene.replica().leads


def fetch_all(scene: Scene, *followers: int, now: float = 0.0) -> None:
    replica = scene.replica()
    for one in followers:
        replica.fetched_by(one, replica.log.end_offset, 0, now)
    scene.replicas.check(replica)


def test_there_is_a_time_to_check_only_while_a_follower_is_behind() -> None:
    scene = Scene()
    scene.apply(add(scene.image, "t", [1, 2]))
    fetch_all(scene, 2)
    assert scene.replicas.next_check() is None
    scene.append(5.0)
    assert scene.replicas.next_check() == 5.0 + LAG
    fetch_all(scene, 2, now=6.0)
    assert scene.replicas.next_check() is None


def test_the_removal_of_a_late_follower_is_requested_once() -> None:
    scene = Scene()
    scene.apply(add(scene.image, "t", [1, 2, 3]))
    fetch_all(scene, 2, 3)
    scene.append(5.0)
    scene.replica().fetched_by(2, 1, 0, 6.0)
    assert scene.replicas.late(5.0 + LAG - 0.1) == []
    (wish,) = scene.replicas.late(5.0 + LAG)
    assert (wish.isr, wish.leader_epoch, wish.partition_epoch) == ((1, 2), 0, 0)
    assert scene.replicas.late(5.0 + LAG) == []
    assert scene.replicas.next_check() is None


def test_a_refused_isr_request_is_made_again() -> None:
    scene = Scene()
    scene.apply(add(scene.image, "t", [1, 2]))
    fetch_all(scene, 2)
    scene.append(5.0)
    (wish,) = scene.replicas.late(5.0 + LAG)
    scene.replicas.unanswered(wish)
    assert scene.replicas.next_check() == 5.0 + LAG
    assert scene.replicas.late(5.0 + LAG) == [wish]


def test_the_refusal_of_an_earlier_isr_request_leaves_the_next_one_alone() -> None:
    scene = Scene()
    scene.apply(add(scene.image, "t", [1, 2, 3]))
    fetch_all(scene, 2, 3)
    scene.append(5.0)
    (old,) = scene.replicas.late(5.0 + LAG)
    scene.change(isr=(1, 2))
    (new,) = scene.replicas.late(5.0 + LAG)
    scene.replicas.unanswered(old)
    assert scene.replica().pending_isr == new.isr == (1,)


def test_the_return_of_a_caught_up_follower_is_requested_if_it_is_up() -> None:
    scene = Scene()
    scene.apply(add(scene.image, "t", [1, 2, 3]))
    assert scene.replicas.caught_up(scene.replica()) is None
    scene.change(isr=(1,))
    fetch_all(scene, 2, 3)
    scene.apply(scene.image.with_broker(replace(scene.image.brokers[3], alive=False)))
    wish = scene.replicas.caught_up(scene.replica())
    assert wish is not None
    assert (wish.isr, wish.partition_epoch) == ((1, 2), 1)
    assert scene.replicas.caught_up(scene.replica()) is None


def test_replicas_outlive_an_election_between_two_images() -> None:
    scene = Scene()
    scene.apply(add(scene.image, "t", [1, 2]))
    scene.append(0.0)
    scene.change(leader=1, leader_epoch=4, isr=(1,))
    assert scene.replica().log.high_watermark == 1
    scene.append(0.0)
    assert scene.replica().log.epochs.entries() == [(0, 0), (4, 1)]
