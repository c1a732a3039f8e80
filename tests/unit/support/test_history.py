"""The history checker on handmade histories: it names each kind of violation, nothing else."""

from __future__ import annotations

import pytest

from tests.history import History, Kind, Outcome, Place, Report, Send, Written, check

P0, P1 = Place("t", 0), Place("t", 1)


def record(offset: int, value: bytes, key: bytes | None = None, **more: object) -> Written:
    return Written(offset, key, value, **more)  # type: ignore[arg-type]


class Story:
    """A history with one producer and one consumer, and the resulting logs."""

    def __init__(self, *, idempotent: bool = True) -> None:
        self.history = History()
        self.history.producer("p", idempotent=idempotent)
        self.logs: dict[Place, list[Written]] = {P0: [], P1: []}

    def send(self, value: bytes, **more: object) -> Send:
        sent = self.history.send("p", "t", value, **more)  # type: ignore[arg-type]
        self.history.taken(sent)
        return sent

    def write(self, *values: bytes, place: Place = P0) -> None:
        log = self.logs[place]
        for value in values:
            log.append(record(log[-1].offset + 1 if log else 0, value))

    def acked(self, value: bytes, place: Place = P0) -> Send:
        """Send, write and acknowledge a record without any violation."""
        sent = self.send(value)
        self.write(value, place=place)
        self.history.ok(sent, place, self.logs[place][-1].offset)
        return sent

    def read(self, *offsets: int, place: Place = P0) -> None:
        by_offset = {one.offset: one for one in self.logs[place]}
        self.history.delivered("c", [(place, by_offset[offset]) for offset in offsets])

    def check(self, **more: object) -> Report:
        return check(self.history, self.logs, **more)  # type: ignore[arg-type]


@pytest.fixture
def story() -> Story:
    """A history of five acknowledged records."""
    made = Story()
    for n in range(5):
        made.acked(b"%d" % n)
    return made


def only(report: Report, kind: Kind) -> None:
    assert report.kinds == {kind}, str(report)
    assert not report
    assert kind.name in str(report)


# Writes.


def test_a_history_as_it_should_be_has_no_violations(story: Story) -> None:
    story.read(0, 1, 2, 3, 4)
    story.history.position("c", P0, 5)
    report = story.check(finished={"c": [P0, P1]})
    assert report, str(report)
    assert (report.acknowledged, report.written, report.delivered) == (5, 5, 5)


def test_an_acknowledged_record_that_is_nowhere_is_a_lost_write(story: Story) -> None:
    story.history.ok(story.send(b"gone"))
    only(story.check(), Kind.LOST_WRITE)


def test_a_lost_write_whose_offset_has_another_record_is_both(story: Story) -> None:
    story.history.ok(story.send(b"gone"), P0, 2)
    assert story.check().kinds == {Kind.LOST_WRITE, Kind.WRONG_OFFSET}


def test_a_record_twice_in_the_log_is_a_duplicate(story: Story) -> None:
    story.write(b"3")
    only(story.check(), Kind.DUPLICATE)


def test_a_record_in_two_partitions_is_a_duplicate() -> None:
    story = Story()
    story.history.ok(story.send(b"x"))
    story.write(b"x", place=P0)
    story.write(b"x", place=P1)
    only(story.check(), Kind.DUPLICATE)


def test_doubles_and_disorder_of_a_producer_without_idempotence_are_legal() -> None:
    story = Story(idempotent=False)
    for value in (b"1", b"2"):
        story.history.ok(story.send(value))
    story.write(b"2", b"1", b"2")
    assert story.check(), str(story.check())


def test_records_in_another_order_than_sent_are_reordered() -> None:
    story = Story()
    sends = [story.send(b"%d" % n) for n in range(4)]
    story.write(b"0", b"2", b"1", b"3")
    for sent in sends:
        story.history.ok(sent)
    only(story.check(), Kind.REORDERED)


def test_an_unacknowledged_record_that_lies_behind_a_later_one_is_reordered() -> None:
    story = Story()
    story.history.info(story.send(b"late"))
    story.acked(b"next")
    story.write(b"late")
    only(story.check(), Kind.REORDERED)


def test_order_between_partitions_and_between_producers_is_free() -> None:
    story = Story()
    story.history.producer("q")
    first = story.send(b"1")
    other = story.history.send("q", "t", b"other")
    story.history.taken(other)
    second = story.send(b"2")
    story.write(b"other", b"1", place=P0)
    story.write(b"2", place=P1)
    for sent in (first, other, second):
        story.history.ok(sent)
    assert story.check()


def test_records_whose_calls_overlap_may_be_in_either_order() -> None:
    story = Story()
    waiting = story.history.send("p", "t", b"waiting")
    story.acked(b"overtook")
    story.history.taken(waiting)
    story.write(b"waiting")
    story.history.ok(waiting)
    assert story.check()


def test_a_record_that_definitely_failed_and_is_in_the_log_is_named(story: Story) -> None:
    story.history.fail(story.send(b"no"), "refused")
    assert story.check()
    story.write(b"no")
    only(story.check(), Kind.FAILED_WRITE_FOUND)


@pytest.mark.parametrize("written", [True, False])
def test_a_record_of_unknown_fate_may_be_in_the_log_or_not(story: Story, written: bool) -> None:
    story.history.info(story.send(b"maybe"), "timed out")
    if written:
        story.write(b"maybe")
    report = story.check()
    assert report
    assert (report.unknown, report.written) == (1, 5 + written)


def test_an_offset_that_holds_another_record_is_wrong() -> None:
    story = Story()
    first, second = story.send(b"1"), story.send(b"2")
    story.write(b"1", b"2", b"3")
    story.history.ok(story.send(b"3"), P0, 2)
    story.history.ok(first, P0, 1)
    story.history.ok(second, P0, 1)
    only(story.check(), Kind.WRONG_OFFSET)


def test_an_unknown_offset_is_not_wrong(story: Story) -> None:
    sent = story.send(b"again")
    story.write(b"again")
    story.history.ok(sent, P0, -1)
    assert story.check()


def test_another_partition_than_asked_for_is_misrouted() -> None:
    story = Story()
    sent = story.send(b"x", partition=1)
    story.write(b"x", place=P0)
    story.history.ok(sent, P0, 0)
    only(story.check(), Kind.MISROUTED)


def test_another_partition_than_reported_is_misrouted() -> None:
    story = Story()
    sent = story.send(b"x")
    story.write(b"x", place=P0)
    story.history.ok(sent, P1, -1)
    only(story.check(), Kind.MISROUTED)


def test_another_topic_is_misrouted() -> None:
    story = Story()
    elsewhere = Place("u", 0)
    story.logs[elsewhere] = []
    story.history.info(story.send(b"x"))
    story.write(b"x", place=elsewhere)
    only(story.check(), Kind.MISROUTED)


def test_another_key_or_other_headers_are_an_alteration() -> None:
    story = Story()
    story.history.ok(story.send(b"key", key=b"a"))
    story.history.ok(story.send(b"headers", headers=(("h", b"1"),)))
    story.logs[P0] = [record(0, b"key", b"b"), record(1, b"headers", headers=(("h", b"2"),))]
    report = story.check()
    only(report, Kind.ALTERED)
    assert len(report.violations) == 2


def test_a_record_that_no_producer_sent_is_a_phantom(story: Story) -> None:
    story.write(b"who?")
    only(story.check(), Kind.PHANTOM)


def test_a_send_without_an_outcome_is_unresolved(story: Story) -> None:
    story.send(b"silence")
    only(story.check(), Kind.UNRESOLVED)


def test_an_outcome_reported_twice_is_named_and_the_first_one_counts(story: Story) -> None:
    sent = story.acked(b"twice")
    story.history.fail(sent)
    assert sent.outcome is Outcome.OK
    only(story.check(), Kind.RESOLVED_TWICE)


def test_values_that_are_not_unique_can_not_be_judged(story: Story) -> None:
    story.send(b"1")
    with pytest.raises(ValueError, match="unique"):
        story.check()


# Reads.


def test_an_offset_left_out_is_a_skip(story: Story) -> None:
    story.read(0, 1, 3)
    only(story.check(), Kind.POLL_SKIP)


def test_the_first_record_left_out_is_a_skip(story: Story) -> None:
    story.read(1)
    only(story.check(), Kind.POLL_SKIP)


def test_an_offset_that_holds_no_record_is_not_skipped() -> None:
    story = Story()
    for value in (b"1", b"2"):
        story.history.ok(story.send(value))
    story.logs[P0] = [record(3, b"1"), record(7, b"2")]
    story.read(3, 7)
    story.history.position("c", P0, 9)
    assert story.check(finished={"c": [P0]})


def test_a_seek_is_no_skip_and_no_repetition(story: Story) -> None:
    story.read(0, 1)
    story.history.seek("c", P0, 4)
    story.read(4)
    story.history.seek("c", P0, 0)
    story.read(0, 1)
    assert story.check(), str(story.check())


def test_behind_a_seek_records_may_not_be_left_out(story: Story) -> None:
    story.history.seek("c", P0, 1)
    story.read(2)
    only(story.check(), Kind.POLL_SKIP)


def test_a_record_below_the_offset_sought_is_out_of_order(story: Story) -> None:
    story.history.seek("c", P0, 3)
    story.read(2, 3)
    only(story.check(), Kind.POLL_NONMONOTONIC)


def test_a_record_given_again_is_doubled(story: Story) -> None:
    story.read(0, 1, 1, 2)
    only(story.check(), Kind.POLL_DOUBLED)


def test_a_record_of_a_paused_partition_is_named(story: Story) -> None:
    story.history.pause("c", P0)
    story.read(0)
    story.history.resume("c", P0)
    story.read(1)
    report = story.check()
    only(report, Kind.POLL_PAUSED)
    assert len(report.violations) == 1


def test_a_record_that_the_log_does_not_have_like_that_is_a_phantom(story: Story) -> None:
    story.history.delivered("c", [(P0, record(0, b"0", b"key"))])
    only(story.check(), Kind.POLL_PHANTOM)


def test_each_consumer_and_each_partition_is_followed_on_its_own(story: Story) -> None:
    story.acked(b"other", place=P1)
    story.read(0, 1)
    story.read(0, place=P1)
    story.history.delivered("d", [(P0, story.logs[P0][0])])
    assert story.check()


def test_a_position_ahead_of_what_was_given_is_a_skip(story: Story) -> None:
    story.read(0)
    story.history.position("c", P0, 2)
    only(story.check(), Kind.POLL_SKIP)


def test_a_position_behind_what_was_given_is_wrong(story: Story) -> None:
    story.read(0, 1)
    story.history.position("c", P0, 1)
    only(story.check(), Kind.POSITION_WRONG)


def test_behind_a_seek_to_the_end_the_first_record_may_lie_further_on() -> None:
    story = Story()
    story.acked(b"0")
    story.history.seek_to_end("c", P0)
    for n in range(1, 4):
        story.acked(b"%d" % n)
    story.read(2, 3)
    assert story.check()


def test_behind_a_seek_to_the_end_nothing_that_was_acknowledged_before_may_come() -> None:
    story = Story()
    story.acked(b"0")
    story.acked(b"1")
    story.history.seek_to_end("c", P0)
    story.read(1)
    only(story.check(), Kind.POLL_NONMONOTONIC)


def test_from_the_first_record_behind_a_seek_to_the_end_none_may_be_left_out(story: Story) -> None:
    story.history.seek_to_end("c", P0)
    for value in (b"5", b"6", b"7"):
        story.acked(value)
    story.read(5, 7)
    only(story.check(), Kind.POLL_SKIP)


def test_a_position_reported_after_a_seek_to_the_end_binds(story: Story) -> None:
    story.history.seek_to_end("c", P0)
    story.history.position("c", P0, 5)
    for value in (b"5", b"6"):
        story.acked(value)
    story.read(6)
    only(story.check(), Kind.POLL_SKIP)


def test_a_record_that_a_finished_consumer_never_came_to_is_unseen(story: Story) -> None:
    story.read(0, 1, 2, 3)
    assert story.check()
    only(story.check(finished={"c": [P0]}), Kind.UNSEEN)


# The record of a run.


def test_the_digest_differs_by_what_happened_and_when() -> None:
    def run(seconds: float, value: bytes) -> str:
        history = History(now=lambda: seconds)
        history.send("p", "t", value)
        return history.digest()

    assert run(1.0, b"x") == run(1.0, b"x")
    assert len({run(1.0, b"x"), run(2.0, b"x"), run(1.0, b"y")}) == 3


def test_a_lean_history_is_judged_alike_and_has_no_digest(story: Story) -> None:
    story.history = History(lean=True)
    story.history.producer("p")
    story.logs = {P0: [], P1: []}
    first, second = story.send(b"1"), story.send(b"2")
    story.write(b"2", b"1")
    for sent in (first, second):
        story.history.ok(sent)
    only(story.check(), Kind.REORDERED)
    assert story.history.lines == []
    with pytest.raises(ValueError, match="lean"):
        story.history.digest()


def test_a_report_shows_the_first_of_each_kind_and_counts_all() -> None:
    story = Story()
    for n in range(20):
        story.history.ok(story.send(b"lost %d" % n))
    text = str(story.check())
    assert "LOST_WRITE x 20" in text
    assert text.count("p sent") == 5
