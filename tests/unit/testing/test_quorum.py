"""The quorum: sessions, one claim at a time, and no image from a replaced controller."""

from __future__ import annotations

import pytest

from kclient.testing.image import NO_LEADER
from kclient.testing.quorum import Fenced, Quorum, QuorumEvent
from tests.unit.testing.images import add, cluster


def quorum(*up: int) -> Quorum:
    made = Quorum(cluster())
    for node_id in up:
        made.open_session(node_id)
    return made


def test_each_session_has_a_higher_number() -> None:
    made = quorum()
    assert made.session_of(1) is None
    first, second = made.open_session(1), made.open_session(2)
    again = made.open_session(1)
    assert first < second < again
    assert made.session_of(1) == again


def test_only_the_first_to_claim_has_it() -> None:
    made = quorum(1, 2)
    assert made.claim(2) == 1
    assert made.claim(1) is None
    assert made.claim(2) is None
    assert (made.controller_id, made.epoch) == (2, 1)


def test_a_broker_without_a_session_claims_nothing() -> None:
    assert quorum(1).claim(2) is None


def test_a_session_that_ends_frees_the_claim_and_the_next_epoch_is_higher() -> None:
    made = quorum(1, 2)
    made.claim(1)
    made.end_session(1)
    assert made.controller_id == NO_LEADER
    assert made.claim(2) == 2


def test_a_new_session_of_the_holder_is_no_claim() -> None:
    made = quorum(1)
    made.claim(1)
    made.open_session(1)
    assert made.controller_id == NO_LEADER


def test_another_ones_session_leaves_the_claim_alone() -> None:
    made = quorum(1, 2)
    made.claim(1)
    made.end_session(2)
    assert made.controller_id == 1


def test_only_the_holder_resigns_and_only_in_its_epoch() -> None:
    made = quorum(1, 2)
    made.claim(1)
    made.resign(2, 1)
    made.resign(1, 0)
    assert made.controller_id == 1
    made.resign(1, 1)
    assert made.controller_id == NO_LEADER


def test_what_the_holder_writes_is_the_newest_image() -> None:
    made = quorum(1)
    epoch = made.claim(1)
    assert epoch is not None
    written = made.write(1, epoch, add(made.image, "t", [1]))
    assert made.image is written
    assert (written.version, written.controller_id, written.controller_epoch) == (1, 1, 1)
    assert "t" in written.topics
    assert made.write(1, epoch, written).version == 2


@pytest.mark.parametrize(("node_id", "epoch"), [(1, 1), (2, 1), (1, 2), (2, 3)])
def test_a_controller_whose_epoch_is_over_writes_nothing(node_id: int, epoch: int) -> None:
    made = quorum(1, 2)
    made.claim(1)
    made.resign(1, 1)
    made.claim(2)
    before = made.image
    with pytest.raises(Fenced):
        made.write(node_id, epoch, add(made.image, "t", [1]))
    assert made.image is before


def test_one_that_reigns_again_is_fenced_in_its_former_epoch() -> None:
    made = quorum(1)
    made.claim(1)
    made.resign(1, 1)
    assert made.claim(1) == 2
    with pytest.raises(Fenced):
        made.write(1, 1, made.image)
    assert made.write(1, 2, made.image).controller_epoch == 2


def test_watchers_are_notified_in_order() -> None:
    made = Quorum(cluster())
    heard: list[tuple[QuorumEvent, int]] = []
    made.watch(lambda news, node_id: heard.append((news, node_id)))
    made.open_session(1)
    made.claim(1)
    made.resign(1, 1)
    made.claim(1)
    made.end_session(1)
    made.end_session(1)
    assert heard == [
        (QuorumEvent.SESSION_OPENED, 1),
        (QuorumEvent.CONTROLLER_ELECTED, 1),
        (QuorumEvent.CONTROLLER_LOST, 1),
        (QuorumEvent.CONTROLLER_ELECTED, 1),
        (QuorumEvent.SESSION_ENDED, 1),
        (QuorumEvent.CONTROLLER_LOST, 1),
    ]
