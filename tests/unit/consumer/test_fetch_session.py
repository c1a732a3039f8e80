"""The fetch session: its table, what requests name, and a model broker to satisfy."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kclient.consumer.fetch_session import (
    TRANSITIONS,
    FetchSession,
    PartitionFetch,
    SessionEvent,
    SessionState,
)
from kclient.error_codes import ErrorCode
from kclient.transitions import IllegalTransition
from kclient.types import TopicPartition
from tests.unit.consumer.session_broker import SessionBroker, Wishes

A, B, C = (TopicPartition("flights", index) for index in range(3))
ID_1, ID_2 = b"1" * 16, b"2" * 16


def opened(*partitions: TopicPartition, session_id: int = 7) -> FetchSession:
    """A session that a first full fetch of ``partitions`` has opened."""
    session = FetchSession()
    for partition in partitions:
        session.want(partition, PartitionFetch(0, 100))
    session.next_request(by_id=False)
    assert session.answered(0, session_id, partitions)
    return session


def test_every_state_is_explained_and_every_target_exists() -> None:
    assert set(TRANSITIONS) == set(SessionState)
    for state, row in TRANSITIONS.items():
        assert len(state.value) > 20
        assert set(row) <= set(SessionEvent)
        assert set(row.values()) <= set(SessionState)
    assert all(len(event.value) > 20 for event in SessionEvent)


def test_every_state_can_reach_the_end_and_the_working_state_is_reachable_from_all_others() -> None:
    for state in SessionState:
        reached, todo = {state}, [state]
        while todo:
            for target in TRANSITIONS[todo.pop()].values():
                if target not in reached:
                    reached.add(target)
                    todo.append(target)
        assert SessionState.CLOSED in reached
        if state is not SessionState.CLOSED:
            assert SessionState.INCREMENTAL in reached


def test_first_request_names_everything_and_asks_for_a_session() -> None:
    session = FetchSession()
    session.want(A, PartitionFetch(5, 100))
    session.want(B, PartitionFetch(6, 100))
    request = session.next_request(by_id=False)
    assert (request.session_id, request.epoch, request.full) == (0, 0, True)
    assert request.partitions == {A: PartitionFetch(5, 100), B: PartitionFetch(6, 100)}
    assert request.forgotten == {}


def test_later_requests_name_changes_only() -> None:
    session = opened(A, B)
    session.want(A, PartitionFetch(50, 100))
    session.want(B, PartitionFetch(0, 100))  # as before
    request = session.next_request(by_id=False)
    assert (request.session_id, request.epoch) == (7, 1)
    assert request.partitions == {A: PartitionFetch(50, 100)}
    session.answered(0, 7, [A])
    request = session.next_request(by_id=False)
    assert (request.epoch, request.partitions) == (2, {})


def test_forgotten_partitions_are_really_sent_once() -> None:
    session = opened(A, B)
    session.forget(B)
    session.forget(C)  # was never requested
    request = session.next_request(by_id=False)
    assert request.forgotten == {B: None}
    session.answered(0, 7, [])
    assert session.next_request(by_id=False).forgotten == {}


def test_forgotten_and_wanted_again_between_two_requests_is_kept() -> None:
    session = opened(A)
    session.forget(A)
    session.want(A, PartitionFetch(9, 100))
    request = session.next_request(by_id=False)
    assert request.forgotten == {}
    assert request.partitions == {A: PartitionFetch(9, 100)}


@pytest.mark.parametrize(
    ("code", "session_id"),
    [(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7)],
)
def test_a_lost_session_is_followed_by_one_full_fetch(code: ErrorCode, session_id: int) -> None:
    session = opened(A, B)
    session.next_request(by_id=False)
    assert not session.answered(code, 0, [])
    request = session.next_request(by_id=False)
    assert request.full
    assert set(request.partitions) == {A, B}
    assert request.session_id == session_id  # where known, so that the broker drops the old one
    assert session.answered(0, 8, [A, B])
    assert session.next_request(by_id=False).partitions == {}


def test_a_lost_response_makes_the_next_request_full() -> None:
    session = opened(A)
    session.want(A, PartitionFetch(10, 100))
    session.next_request(by_id=False)
    session.lost()
    request = session.next_request(by_id=False)
    assert (request.session_id, request.epoch, request.partitions) == (
        7,
        0,
        {A: PartitionFetch(10, 100)},
    )


def test_what_was_never_sent_changes_nothing() -> None:
    session = opened(A)
    session.lost()
    assert session.state is SessionState.INCREMENTAL


def test_a_broker_without_memory_for_sessions_gets_full_requests() -> None:
    session = opened(A, session_id=0)
    assert session.state is SessionState.INITIAL
    assert session.next_request(by_id=False).full


def test_a_broker_may_end_the_session_in_a_response() -> None:
    session = opened(A)
    session.next_request(by_id=False)
    assert session.answered(0, 0, [A])
    assert (session.state, session.session_id) == (SessionState.INITIAL, 0)


def test_a_response_about_a_partition_that_was_not_requested_ends_the_session() -> None:
    session = opened(A)
    session.next_request(by_id=False)
    assert session.answered(0, 7, [C])
    assert session.state is SessionState.BROKEN


def test_a_full_response_that_leaves_a_partition_out_ends_the_session_that_it_opened() -> None:
    session = FetchSession()
    session.want(A, PartitionFetch(0, 100))
    session.want(B, PartitionFetch(0, 100))
    session.next_request(by_id=False)
    assert session.answered(0, 7, [A])
    request = session.next_request(by_id=False)
    assert (request.session_id, request.full) == (7, True)


def test_a_session_of_names_does_not_go_on_with_ids() -> None:
    session = opened(A)
    session.want(A, PartitionFetch(0, 100, -1, ID_1))
    request = session.next_request(by_id=True)
    assert (request.full, request.session_id, request.forgotten) == (True, 7, {})


def test_a_recreated_topic_is_forgotten_by_its_old_id_and_requested_by_the_new_one() -> None:
    session = FetchSession()
    session.want(A, PartitionFetch(0, 100, -1, ID_1))
    session.next_request(by_id=True)
    session.answered(0, 7, [A])
    session.want(A, PartitionFetch(0, 100, -1, ID_2))
    request = session.next_request(by_id=True)
    assert request.forgotten == {A: ID_1}
    assert request.partitions == {A: PartitionFetch(0, 100, -1, ID_2)}
    assert session.topic_names == {ID_1: "flights", ID_2: "flights"}


def test_a_recreated_topic_is_not_forgotten_by_its_name() -> None:
    session = FetchSession()
    session.want(A, PartitionFetch(0, 100, -1, ID_1))
    session.next_request(by_id=False)
    session.answered(0, 7, [A])
    session.want(A, PartitionFetch(0, 100, -1, ID_2))
    request = session.next_request(by_id=False)
    assert request.forgotten == {}
    assert list(request.partitions) == [A]


def test_ids_count_only_where_all_partitions_have_one() -> None:
    session = FetchSession()
    session.want(A, PartitionFetch(0, 100, -1, ID_1))
    assert session.has_all_ids
    session.want(B, PartitionFetch(0, 100))
    assert not session.has_all_ids
    session.want(B, PartitionFetch(0, 100, -1, ID_2))
    assert session.has_all_ids
    session.want(C, PartitionFetch(0, 100))
    session.forget(C)
    assert session.has_all_ids


def test_a_partition_that_was_served_comes_last_in_the_next_full_request() -> None:
    session = opened(A, B, C, session_id=0)
    session.move_to_end(A)
    session.move_to_end(TopicPartition("other", 0))
    assert list(session.next_request(by_id=False).partitions) == [B, C, A]


def test_epochs_wrap_to_one() -> None:
    session = opened(A)
    session.epoch = 2**31 - 1
    session.next_request(by_id=False)
    session.answered(0, 7, [])
    assert session.next_request(by_id=False).epoch == 1


def test_closing_frees_the_slot_of_the_broker() -> None:
    session = opened(A)
    request = session.close()
    assert request is not None
    assert (request.session_id, request.epoch, request.partitions) == (7, -1, {})
    assert session.close() is None
    assert not session.answered(0, 7, [])


def test_closing_without_a_session_sends_nothing() -> None:
    assert FetchSession().close() is None


def test_an_illegal_step_raises() -> None:
    session = FetchSession()
    session.close()
    with pytest.raises(IllegalTransition, match="MISMATCH in state CLOSED"):
        session._apply(SessionEvent.MISMATCH)


class Conversation(RuleBasedStateMachine):
    """Client and broker, with lost responses, evictions and recreated topics at any moment."""

    partitions = st.sampled_from([TopicPartition(t, p) for t in ("a", "b") for p in range(3)])

    def __init__(self) -> None:
        super().__init__()
        self.session = FetchSession()
        self.broker = SessionBroker()
        self.topic_ids = {"a": ID_1, "b": ID_2}
        self.by_id = True
        self.wanted: Wishes = {}

    @rule(partition=partitions, offset=st.integers(0, 3))
    def want(self, partition: TopicPartition, offset: int) -> None:
        ask = PartitionFetch(offset, 100, -1, self.topic_ids[partition.topic])
        self.wanted[partition] = ask
        self.session.want(partition, ask)

    @rule(partition=partitions)
    def forget(self, partition: TopicPartition) -> None:
        self.wanted.pop(partition, None)
        self.session.forget(partition)

    @rule(topic=st.sampled_from("ab"), number=st.integers(0, 3))
    def make_anew(self, topic: str, number: int) -> None:
        self.topic_ids[topic] = f"{topic}{number}".encode().ljust(16)
        for partition, ask in list(self.wanted.items()):
            if partition.topic == topic:
                self.want(partition, ask.offset)

    @rule()
    def evict(self) -> None:
        self.broker.evict()

    @rule(slots=st.integers(0, 1))
    def limit(self, slots: int) -> None:
        self.broker.slots = slots

    @rule()
    def talk_another_version(self) -> None:
        self.by_id = not self.by_id

    @rule(reply_lost=st.booleans())
    def fetch(self, reply_lost: bool) -> None:
        request = self.session.next_request(self.by_id)
        code, session_id, read = self.broker.serve(request, self.by_id)
        if reply_lost:
            self.session.lost()
            return
        if code == ErrorCode.NONE:
            # Whatever happened before, the broker reads what is wanted, and nothing else.
            assert read == self.wanted
        self.session.answered(code, session_id, read)

    @rule()
    def two_in_a_row_succeed(self) -> None:
        outcomes = []
        for _ in range(2):
            request = self.session.next_request(self.by_id)
            code, session_id, read = self.broker.serve(request, self.by_id)
            outcomes.append(code)
            if self.session.answered(code, session_id, read):
                assert read == self.wanted
        assert outcomes[1] == ErrorCode.NONE  # one full fetch is enough to recover

    @invariant()
    def asked_is_what_is_wanted(self) -> None:
        assert self.session.asked == self.wanted


TestConversation = Conversation.TestCase
TestConversation.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
