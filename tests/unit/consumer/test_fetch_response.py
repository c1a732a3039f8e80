"""What each response for a partition leads to."""

from __future__ import annotations

from typing import Any

import pytest

from kclient.broker_errors import CorruptMessage, OffsetOutOfRange, UnknownServerError
from kclient.config import ConsumerConfig
from kclient.consumer.fetch_response import QUIET_FAILURES, FetchFollowUp, FetchResponseReader
from kclient.consumer.fetch_session import PartitionFetch
from kclient.consumer.partition_state import Phase
from kclient.error_codes import ErrorCode
from kclient.errors import CorruptRecord, KafkaError
from kclient.protocol.messages.fetch import AbortedTransaction, LeaderIdAndEpoch, PartitionData
from kclient.types import OffsetSpec
from tests.unit.consumer.log_bytes import batch, control
from tests.unit.consumer.test_fetch_scheduler import PlanRig, planned


class ReplyRig:
    """One partition at offset 0 with leader 1, and a reader of responses."""

    def __init__(self, *, reset: OffsetSpec | None = None, read_committed: bool = False) -> None:
        self.rig: PlanRig = planned(1, 1)
        self.rig.subscription.default_reset = reset
        assert self.rig.plan is not None
        self.backed_off: list[int] = []
        self.news = FetchFollowUp(1)
        self.reader = FetchResponseReader(
            self.rig.subscription,
            self.rig.buffer,
            self.rig.plan,
            ConsumerConfig(
                isolation_level="read_committed" if read_committed else "read_uncommitted",
                metadata_max_age=60.0,
            ),
            back_off=self._back_off,
        )
        self.state = self.rig.state(0)

    def _back_off(self, state: Any) -> None:
        self.backed_off.append(state.topic_partition.partition)
        self.rig.subscription.back_off(state, 0.0)

    def read(
        self,
        *,
        asked: int = 0,
        broker: int | None = None,
        topic_id: bytes | None = None,
        **fields: Any,
    ) -> None:
        """Read a response to a fetch at ``asked``, of the responsible broker by default."""
        lease = self.rig.buffer.lease(100, lambda: None)
        part = PartitionData(partition_index=0, **{"high_watermark": -1, **fields})
        self.news.node_id = broker or self.state.node_id or 1
        ask = PartitionFetch(asked, 1000, topic_id=topic_id)
        self.reader.read(self.state, ask, part, lease, self.news, 0.0)
        lease.drop()

    def error(self) -> KafkaError | None:
        return self.rig.subscription.take_error()


def test_records_go_to_the_buffer_and_the_fetch_goes_on_behind_them() -> None:
    rig = ReplyRig()
    rig.read(records=batch(0, 3), high_watermark=10, last_stable_offset=7, log_start_offset=0)
    assert rig.state.fetch_offset == 3
    assert rig.state.position == 0
    assert (rig.state.high_watermark, rig.state.last_stable_offset) == (10, 7)
    assert rig.state.log_start_offset == 0
    assert rig.news.partitions == 1
    assert rig.rig.take(9) == [(0, 0), (0, 1), (0, 2)]


def test_brokers_that_report_no_stable_offset_have_everything_stable() -> None:
    rig = ReplyRig()
    rig.read(high_watermark=10, last_stable_offset=-1)
    assert rig.state.last_stable_offset == 10


def test_an_empty_response_ends_a_row_of_failures() -> None:
    rig = ReplyRig()
    rig.state.failures = 3
    rig.read(high_watermark=0)
    assert rig.state.failures == 0
    assert not rig.rig.buffer.holds(rig.state)


@pytest.mark.parametrize("what", ["sought", "paused", "unassigned", "waiting"])
def test_a_response_to_an_outdated_request_is_dropped(what: str) -> None:
    rig = ReplyRig()
    subscription = rig.rig.subscription
    match what:
        case "sought":
            subscription.seek(rig.state, 1)
        case "paused":
            subscription.pause(rig.state)
        case "unassigned":
            subscription.assign([])
        case "waiting":
            subscription.ask_reset(rig.state, OffsetSpec.LATEST)
    rig.read(records=batch(0, 3), high_watermark=99)
    rig.read(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    rig.read(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not rig.rig.buffer.holds(rig.state)
    assert rig.error() is None
    assert rig.backed_off == []


@pytest.mark.parametrize("what", ["sought", "paused", "waiting"])
def test_the_ends_of_the_log_are_taken_from_late_responses_too(what: str) -> None:
    # A session reports them only when they change: once dropped they never come again.
    rig = ReplyRig()
    match what:
        case "sought":
            rig.rig.subscription.seek(rig.state, 1)
        case "paused":
            rig.rig.subscription.pause(rig.state)
        case "waiting":
            rig.rig.subscription.ask_reset(rig.state, OffsetSpec.LATEST)
    rig.read(high_watermark=99, last_stable_offset=98, log_start_offset=7)
    ends = rig.state.high_watermark, rig.state.last_stable_offset, rig.state.log_start_offset
    assert ends == (99, 98, 7)


def test_a_response_about_a_topic_that_was_recreated_is_dropped_at_equal_offsets() -> None:
    rig = ReplyRig()
    old, new = b"1" * 16, b"2" * 16
    rig.rig.subscription.update_metadata(rig.state, old, -1)
    rig.rig.subscription.update_metadata(rig.state, new, -1)
    rig.rig.subscription.seek(rig.state, 0)
    rig.read(topic_id=old, records=batch(0, 3), high_watermark=99)
    assert not rig.rig.buffer.holds(rig.state)
    assert rig.state.high_watermark == -1
    rig.read(topic_id=new, records=batch(0, 3), high_watermark=3)
    assert rig.state.high_watermark == 3
    assert len(rig.rig.take(9)) == 3


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ],
)
def test_an_error_of_a_broker_that_is_no_longer_asked_is_dropped(code: ErrorCode) -> None:
    rig = ReplyRig(reset=OffsetSpec.EARLIEST)
    rig.read(broker=2, error_code=code, high_watermark=50)
    assert (rig.state.phase, rig.state.position) == (Phase.FETCHING, 0)
    assert (rig.error(), rig.backed_off, rig.news.stale_topics) == (None, [], {})
    assert rig.state.high_watermark == -1


def test_records_of_a_broker_that_is_no_longer_asked_are_as_good_but_not_its_advice() -> None:
    rig = ReplyRig()
    rig.read(broker=2, records=batch(0, 3), preferred_read_replica=3)
    assert rig.state.node_id == 1
    assert len(rig.rig.take(9)) == 3


def test_a_truncated_last_batch_is_fetched_again() -> None:
    rig = ReplyRig()
    rig.read(records=batch(0, 3) + batch(3, 5)[:-4])
    assert rig.state.fetch_offset == 3


def test_a_piece_of_a_batch_alone_is_an_error_that_names_the_place() -> None:
    rig = ReplyRig()
    rig.read(records=batch(0, 3)[:-1])
    assert rig.rig.take(1) == []
    [(_, error)] = rig.rig.corrupt
    assert "t-0" in str(error)
    assert "position stays at 0" in str(error)


def test_what_precedes_a_broken_length_is_given() -> None:
    rig = ReplyRig()
    broken = bytearray(batch(3, 1))
    broken[8:12] = b"\xff\xff\xff\xff"
    rig.read(records=batch(0, 3) + bytes(broken))
    assert rig.rig.take(9) == [(0, 0), (0, 1), (0, 2)]
    [(_, error)] = rig.rig.corrupt
    assert isinstance(error, CorruptRecord)
    assert error.offset == 3
    assert error.topic_partition == ("t", 0)
    assert rig.state.position == 3


def test_read_committed_hides_what_the_response_lists_as_aborted() -> None:
    log = batch(0, 2, producer_id=5, transactional=True) + control(2, 5, 0) + batch(3, 1)
    for read_committed, expected in ((True, [3]), (False, [0, 1, 3])):
        rig = ReplyRig(read_committed=read_committed)
        aborted = [AbortedTransaction(producer_id=5, first_offset=0)]
        rig.read(records=log, aborted_transactions=aborted)
        assert [offset for _, offset in rig.rig.take(9)] == expected


def test_out_of_range_is_reset_by_policy() -> None:
    rig = ReplyRig(reset=OffsetSpec.EARLIEST)
    rig.read(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert (rig.state.phase, rig.state.reset_to) == (Phase.AWAITING_RESET, OffsetSpec.EARLIEST)
    assert rig.error() is None


def test_resets_that_lead_out_of_range_again_back_off_until_something_is_read() -> None:
    rig = ReplyRig(reset=OffsetSpec.EARLIEST)
    for count in range(4):
        rig.read(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        assert len(rig.backed_off) == count
        assert rig.state.failures == (count and count + 1)
        rig.rig.subscription.finish_resets([(rig.state, rig.state.position_version, 0, -1)])
    rig.read(records=batch(0, 3))
    rig.rig.take(3)
    rig.read(asked=3, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert len(rig.backed_off) == 3


def test_out_of_range_without_a_policy_is_an_error_with_the_offset() -> None:
    rig = ReplyRig()
    rig.rig.subscription.seek(rig.state, 500)
    rig.read(asked=500, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    error = rig.error()
    assert isinstance(error, OffsetOutOfRange)
    assert error.topic_partition == ("t", 0)
    assert "offset 500" in str(error)
    assert "auto_offset_reset" in str(error)
    assert rig.state.position == 500
    assert rig.backed_off == [0]


def test_out_of_range_ahead_of_the_position_waits_for_what_is_buffered() -> None:
    rig = ReplyRig(reset=OffsetSpec.EARLIEST)
    rig.read(records=batch(0, 3))
    rig.read(asked=3, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert rig.state.phase is Phase.FETCHING
    assert rig.rig.take(9) == [(0, 0), (0, 1), (0, 2)]
    rig.read(asked=3, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert rig.state.phase is Phase.AWAITING_RESET


def test_out_of_range_from_a_follower_asks_the_leader() -> None:
    rig = ReplyRig(reset=OffsetSpec.EARLIEST)
    rig.read(preferred_read_replica=2)
    assert rig.state.node_id == 2
    rig.read(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert (rig.state.node_id, rig.state.phase) == (1, Phase.FETCHING)


def test_out_of_range_recalls_what_a_loop_has_not_returned_and_waits_for_it() -> None:
    rig = ReplyRig(reset=OffsetSpec.EARLIEST)
    rig.read(records=batch(0, 3))
    taken = rig.rig.buffer.take(9)
    rig.rig.subscription.recall = lambda: rig.rig.buffer.give_back(taken[1:])
    rig.read(asked=3, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert (rig.state.phase, rig.state.position) == (Phase.FETCHING, 1)
    assert rig.rig.take(9) == [(0, 1), (0, 2)]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    ],
)
def test_a_view_that_is_out_of_date_is_refreshed_without_bothering_the_user(
    code: ErrorCode,
) -> None:
    rig = ReplyRig()
    for _ in range(20):
        rig.read(error_code=code)
    assert list(rig.news.stale_topics) == ["t"]
    assert rig.error() is None
    assert len(rig.backed_off) == 20
    assert rig.state.position == 0


def test_a_hint_of_the_new_leader_is_passed_on() -> None:
    rig = ReplyRig()
    rig.read(
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=8),
    )
    assert rig.news.leaders == [("t", 0, 2, 8)]
    assert rig.news.stale_topics == {}
    assert rig.backed_off == [0]


def test_a_follower_that_lost_the_partition_sends_back_to_the_leader() -> None:
    rig = ReplyRig()
    rig.read(preferred_read_replica=3)
    rig.read(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert rig.state.node_id == 1


@pytest.mark.parametrize(
    "code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE]
)
def test_a_refusal_for_good_is_an_error_at_once(code: ErrorCode) -> None:
    rig = ReplyRig()
    rig.read(error_code=code)
    error = rig.error()
    assert code.name in str(error)
    assert "t-0 at offset 0 from broker 1" in str(error)
    assert rig.backed_off == [0]


def test_a_log_that_is_broken_on_the_broker_is_an_error_at_once() -> None:
    rig = ReplyRig()
    rig.read(error_code=ErrorCode.CORRUPT_MESSAGE)
    assert isinstance(rig.error(), CorruptMessage)


def test_server_errors_are_waited_out_a_few_times_and_then_raised() -> None:
    rig = ReplyRig()
    for _ in range(QUIET_FAILURES):
        rig.read(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        assert rig.error() is None
    rig.read(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    assert isinstance(rig.error(), UnknownServerError)


def test_a_code_of_a_later_release_does_not_break_anything() -> None:
    rig = ReplyRig()
    for _ in range(QUIET_FAILURES + 1):
        rig.read(error_code=9999)
    assert "9999" in str(rig.error())
