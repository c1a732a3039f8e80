"""Records for partitions that aren't there, or not yet: they wait until that is sure."""

from __future__ import annotations

import pytest

from kclient.errors import InvalidArgument, MetadataTimedOut
from kclient.producer.parking import Parked

from .rig import Rig, make_topic
from .test_intake import serve_all, unknown


def say_fewer(rig: Rig, partitions: int = 2) -> None:
    """Brokers say that topic t has so many partitions, and have all the time."""
    rig.metadata.fewer = rig.clock.time
    rig.metadata.publish(rig.metadata.view.with_topic(make_topic("t", [1] * partitions)))
    rig.step()


def test_a_partition_that_does_not_exist_fails_when_brokers_have_said_so_for_long() -> None:
    rig = Rig(2)
    delivery = rig.send(b"v", partition=2)
    assert "t" in rig.metadata.asked and rig.metadata.counted == ["t"]
    for seconds in (0.0, 4.9, 0.1):  # of 5.0 just now nothing is sure
        rig.pass_time(seconds)
        say_fewer(rig)
        assert not delivery.done()
    rig.pass_time(0.1)
    assert not delivery.done()
    say_fewer(rig)
    with pytest.raises(InvalidArgument, match="partition 2 of topic t doesn't exist: it has 2"):
        delivery.result()


def test_each_record_for_a_partition_that_does_not_exist_waits_as_long() -> None:
    rig = Rig(2)
    deliveries = []
    for _ in range(3):
        deliveries.append(rig.send(b"v", partition=2))
        rig.pass_time(2.0)
    say_fewer(rig)
    assert [one.done() for one in deliveries] == [True, False, False]
    rig.pass_time(1.1)
    say_fewer(rig)
    assert [one.done() for one in deliveries] == [True, True, False]
    say_fewer(rig, 3)
    assert deliveries[2].partition == 2 and not isinstance(deliveries[2]._outcome, Parked)


def test_a_record_that_waited_for_its_topic_waits_anew_for_its_partition() -> None:
    rig = unknown()
    delivery = rig.send(b"v", partition=2)
    rig.pass_time(60.0)
    say_fewer(rig)
    assert not delivery.done()
    rig.pass_time(5.1)
    say_fewer(rig)
    with pytest.raises(InvalidArgument, match="it has 2, 0 to 1"):
        delivery.result()


def test_who_waits_for_a_partition_holds_up_nobody_else() -> None:
    rig = Rig(2)
    rig.send(b"v", partition=2)
    others = [rig.send(b"v", partition=1), rig.send(b"v"), rig.send(b"v", key=b"k")]
    broker = serve_all(rig)
    assert all(one.done() for one in others)
    assert sum(len(broker.log("t", index).values) for index in (0, 1)) == 3


def test_records_for_a_new_partition_go_there_in_their_order() -> None:
    rig = Rig(2)
    for number in range(20):
        rig.send(b"%d" % number, partition=2)
    say_fewer(rig, 3)
    rig.send(b"20", partition=2)
    broker = serve_all(rig)
    assert broker.log("t", 2).values == [b"%d" % number for number in range(21)]
    assert rig.intake.lot.total == 0 and rig.intake.lot.claimed == 0


def test_records_for_an_absent_partition_are_given_up_in_several_steps() -> None:
    rig = Rig(2)
    deliveries = [rig.send(b"v", partition=2) for _ in range(2500)]
    rig.pass_time(5.1)
    say_fewer(rig)
    assert [one.done() for one in deliveries] == [True] * 1000 + [False] * 1500
    rig.step()
    rig.step()
    assert all(one.done() for one in deliveries)
    assert rig.intake.lot.total == 0 and rig.intake.lot.claimed == 0


def test_a_cancelled_record_leaves_the_line_for_its_partition() -> None:
    rig = Rig(2)
    deliveries = [rig.send(b"%d" % number, partition=2) for number in range(2)]
    assert deliveries[0].cancel()
    say_fewer(rig, 3)
    broker = serve_all(rig)
    assert broker.log("t", 2).values == [b"1"]
    last = rig.send(b"v", partition=3)
    assert last.cancel() and rig.intake.lot.total == 0
    rig.pass_time(5.1)
    say_fewer(rig, 3)


def test_a_partition_that_nobody_is_sure_about_fails_after_delivery_timeout() -> None:
    rig = Rig(2, delivery_timeout=3.0)
    delivery = rig.send(b"v", partition=2)
    rig.pass_time(3.1)
    error = delivery.exception()
    assert isinstance(error, MetadataTimedOut) and error.maybe_written is False
    assert "partition 2 of topic t isn't known: it has 2, 0 to 1" in str(error)
    assert "delivery_timeout=3 s" in str(error)


def test_a_partition_that_was_just_added_is_found() -> None:
    rig = Rig(2)
    delivery = rig.send(b"v", partition=2)
    rig.metadata.publish(rig.metadata.view.with_topic(make_topic("t", [1, 1, 1])))
    assert delivery.partition == 2 and not isinstance(delivery._outcome, Parked)
