"""What is requested, when, and what a response changes. Time is a number here."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

from kclient.backoff import Backoff
from kclient.cluster import metadata_merge
from kclient.cluster.metadata import LeaderHint, MetadataRefresh, MetadataState, metadata_request
from kclient.cluster.topic import Topic
from kclient.cluster.view import Broker, Cluster
from kclient.config import CommonConfig
from kclient.errors import (
    BrokerError,
    BrokerUnreachable,
    InvalidArgument,
    ProtocolError,
    broker_error,
)
from kclient.protocol.messages.metadata import MetadataResponse
from tests.unit.cluster.answers import A, B, answer, topic

UNKNOWN, LEADERLESS, INVALID, FORBIDDEN, REBOOTSTRAP = 3, 5, 17, 29, 129
DOWN = BrokerUnreachable("down")


def state(
    *, max_age: float = 300.0, max_idle: float = 300.0, rebootstrap_after: float = 300.0
) -> MetadataState:
    config = CommonConfig(
        metadata_max_age=max_age,
        metadata_max_idle=max_idle,
        metadata_recovery_rebootstrap_trigger=rebootstrap_after,
    )
    return MetadataState(config, Backoff(0.1, 1.0, jitter=0.0), random.Random(1))


def ask(meta: MetadataState, now: float) -> MetadataRefresh:
    step = meta.decide(now)
    assert isinstance(step, MetadataRefresh), f"nothing to ask before {step}"
    return step


def apply_response(
    meta: MetadataState,
    asked: MetadataRefresh,
    said: MetadataResponse,
    now: float = 0.0,
    version: int = 12,
) -> Cluster:
    decoding = MetadataResponse.decode_steps(said.encode(version), version)
    for _ in meta.apply_response_steps(asked, decoding, version, now):
        pass
    return meta.view


def ready(*names: str, now: float = 0.0, **settings: float) -> MetadataState:
    """Return a state that knows ``names`` with one partition led by 1 in epoch 1."""
    meta = state(**settings)
    for name in names:
        meta.pin(name)
    apply_response(
        meta, ask(meta, now), answer(*[topic(n, [(1, 1)], topic_id=A) for n in names]), now
    )
    return meta


class TestSchedule:
    def test_the_first_refresh_is_due_at_once_at_a_bootstrap_address(self) -> None:
        assert state().decide(0.0) == MetadataRefresh((), full=True, serial=1, bootstrap=True)

    def test_a_fresh_view_is_due_again_by_age(self) -> None:
        meta = ready("t", now=10.0, max_age=300.0)
        assert meta.decide(11.0) == 310.0
        assert ask(meta, 310.0).full

    def test_a_need_makes_a_refresh_due(self) -> None:
        meta = ready("t")
        meta.need()
        assert ask(meta, 1.0) == MetadataRefresh(("t",), full=True, serial=3, bootstrap=False)

    def test_many_needs_make_one_request(self) -> None:
        meta = ready("t")
        for _ in range(1000):
            meta.need()
        apply_response(meta, ask(meta, 1.0), answer(topic("t", [(2, 2)], topic_id=A)), 1.0)
        assert meta.decide(2.0) == 301.0

    def test_a_need_of_one_topic_asks_for_that_topic_only(self) -> None:
        meta = ready("t", "u")
        meta.need("u")
        asked = ask(meta, 1.0)
        assert (asked.topics, asked.full) == (("u",), False)

    def test_a_partial_response_keeps_the_other_topics_and_does_not_count_as_a_full_one(
        self,
    ) -> None:
        meta = ready("t", "u", now=0.0)
        meta.need("u")
        apply_response(meta, ask(meta, 10.0), answer(topic("u", [(2, 2)], topic_id=A)), 10.0)
        assert meta.view.leader("t", 0) == 1
        assert meta.view.leader("u", 0) == 2
        assert meta.decide(11.0) == 300.0

    def test_a_new_topic_does_not_wait_for_the_back_off(self) -> None:
        meta = ready("t", now=0.0)
        meta.touch("u", 0.001)
        assert ask(meta, 0.001).topics == ("u",)

    def test_a_new_topic_during_the_back_off_of_a_need_is_asked_for_alone(self) -> None:
        meta = ready("t", now=0.0)
        meta.need()
        meta.touch("u", 0.001)
        asked = ask(meta, 0.001)
        assert (asked.topics, asked.full) == (("u",), False)

    def test_a_topic_asked_for_before_does_wait(self) -> None:
        meta = ready("t", now=0.0)
        meta.touch("u", 0.0)
        apply_response(meta, ask(meta, 0.0), answer(topic("u", error=UNKNOWN)), 0.0)
        meta.need("u")
        assert meta.decide(0.01) == pytest.approx(0.1)

    def test_a_need_that_comes_up_during_a_request_survives_its_response(self) -> None:
        meta = ready("t")
        meta.need()
        asked = ask(meta, 1.0)
        meta.need()
        apply_response(meta, asked, answer(topic("t", [(1, 1)], topic_id=A)), 1.0)
        assert ask(meta, 2.0).full

    def test_a_topic_added_during_a_request_is_asked_for_next(self) -> None:
        meta = state()
        asked = ask(meta, 0.0)
        meta.pin("t")
        apply_response(meta, asked, answer(), 0.0)
        assert ask(meta, 0.0).topics == ("t",)

    def test_failures_back_off_exponentially_up_to_the_maximum(self) -> None:
        meta = state()
        now, gaps = 0.0, []
        for _ in range(7):
            ask(meta, now)
            meta.failed(DOWN, now)
            step = meta.decide(now)
            assert isinstance(step, float)
            gaps.append(round(step - now, 6))
            now = step
        assert gaps == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]

    def test_a_new_topic_does_not_override_the_back_off_of_failures(self) -> None:
        meta = state()
        ask(meta, 0.0)
        meta.failed(DOWN, 0.0)
        meta.touch("t", 0.0)
        assert meta.decide(0.0) == pytest.approx(0.1)

    def test_an_unchanged_leader_makes_no_storm(self) -> None:
        """The leader keeps refusing and metadata keeps naming it: requests back off."""
        meta = ready("t", now=0.0)
        now, asked_at = 0.0, []
        while now < 20.0:
            meta.need()
            step = meta.decide(now)
            if isinstance(step, MetadataRefresh):
                asked_at.append(now)
                apply_response(meta, step, answer(topic("t", [(1, 1)], topic_id=A)), now)
                now += 0.001
            else:
                now = step
        assert len(asked_at) <= 25
        assert asked_at[-1] - asked_at[-2] == pytest.approx(1.0, abs=0.01)

    def test_a_leader_that_is_away_is_looked_after_often_while_an_election_may_take_that_long(
        self,
    ) -> None:
        gaps = self._gaps_while_away(60.0)
        assert gaps[:4] == pytest.approx([0.1, 0.1, 0.2, 0.4])
        early = gaps[4:70]
        assert early == pytest.approx([0.4] * 66)  # until about 27 s
        assert gaps[-20:] == pytest.approx([1.0] * 20)

    def test_large_responses_are_asked_for_less_often_but_as_often_as_for_any_other_need(
        self,
    ) -> None:
        some = self._gaps_while_away(20.0, apply_seconds=0.06)
        assert some[5:30] == pytest.approx([0.6] * 25)
        assert self._gaps_while_away(20.0, apply_seconds=3.0)[5:15] == pytest.approx([1.0] * 10)

    @staticmethod
    def _gaps_while_away(seconds: float, apply_seconds: float = 0.0) -> list[float]:
        """Seconds between the requests of a client whose only known leader is unreachable."""
        meta = ready("t", now=0.0)
        meta.apply_seconds = apply_seconds
        meta.leader_unreachable(1, 0.0)
        now, asked_at = 0.0, [0.0]
        while now < seconds:
            step = meta.decide(now)
            if isinstance(step, MetadataRefresh):
                asked_at.append(now)
                apply_response(meta, step, answer(topic("t", [(1, 1)], topic_id=A)), now)
                meta.unreachable_leaders.wanted(1, now)
                meta.review_leaders(lambda _: True, now)
            else:
                now = step
        return [after - before for before, after in pairwise(asked_at)]

    def test_a_long_back_off_of_quiet_times_does_not_delay_the_first_look(self) -> None:
        meta = ready("t", now=0.0)
        now = 0.0
        for _ in range(8):
            meta.need()
            step = meta.decide(now)
            now = step if isinstance(step, float) else now
            apply_response(meta, ask(meta, now), answer(topic("t", [(1, 1)], topic_id=A)), now)
        assert meta.decide(now) == now + 300.0
        meta.leader_unreachable(1, now)
        assert meta.decide(now) == pytest.approx(now + 0.4)
        meta.leader_unreachable(1, now + 0.1)
        assert meta.decide(now) == pytest.approx(now + 0.4)

    def test_a_leader_without_requests_for_it_is_forgotten(self) -> None:
        meta = ready("t", now=0.0)
        meta.leader_unreachable(1, 0.0)
        now, last = 0.0, 0.0
        while now < 200.0:
            step = meta.decide(now)
            if isinstance(step, MetadataRefresh):
                last = now
                apply_response(meta, step, answer(topic("t", [(1, 1)], topic_id=A)), now)
                meta.review_leaders(lambda _: True, now)
            else:
                now = step
        assert 60.0 <= last <= 61.0

    def test_a_leader_that_is_back_or_leads_nothing_is_not_looked_after(self) -> None:
        for back, leader in ((True, 1), (False, 2)):
            meta = ready("t", now=0.0)
            meta.leader_unreachable(1, 0.0)
            apply_response(meta, ask(meta, 0.1), answer(topic("t", [(leader, 2)], topic_id=A)), 0.1)
            meta.review_leaders(lambda _, back=back: not back, 0.1)  # type: ignore[misc]
            assert meta.decide(0.1) == 300.1

    def test_a_change_ends_the_thinning_out(self) -> None:
        meta = ready("t", now=0.0)
        now = 0.0
        for epoch in (1, 1, 1, 1, 1, 2):
            meta.need()
            step = meta.decide(now)
            now = step if isinstance(step, float) else now
            apply_response(meta, ask(meta, now), answer(topic("t", [(1, epoch)], topic_id=A)), now)
        meta.need()
        assert meta.decide(now) == pytest.approx(now + 0.1)


class TestWanted:
    def test_an_unused_topic_expires(self) -> None:
        meta = state(max_age=10.0, max_idle=20.0)
        meta.touch("t", 0.0)
        apply_response(meta, ask(meta, 0.0), answer(topic("t", [(1, 1)])), 0.0)
        apply_response(meta, ask(meta, 10.0), answer(topic("t", [(1, 1)])), 10.0)
        assert ask(meta, 21.0).topics == ()
        apply_response(meta, MetadataRefresh((), True, 99), answer(), 21.0)
        assert meta.view.topic("t") is None

    def test_a_touched_topic_stays(self) -> None:
        meta = state(max_age=10.0, max_idle=20.0)
        meta.touch("t", 0.0)
        apply_response(meta, ask(meta, 0.0), answer(topic("t", [(1, 1)])), 0.0)
        meta.touch("t", 9.0)
        assert ask(meta, 21.0).topics == ("t",)

    def test_a_pinned_topic_stays_until_its_last_unpin(self) -> None:
        meta = ready("t", max_age=10.0, max_idle=20.0)
        meta.pin("t")
        meta.unpin("t", 0.0)
        assert ask(meta, 1000.0).topics == ("t",)
        meta.unpin("t", 1000.0)
        assert ask(meta, 1010.0).topics == ("t",)
        assert ask(meta, 1021.0).topics == ()

    def test_unpinning_what_is_not_pinned_is_fine(self) -> None:
        meta = state()
        meta.unpin("t", 0.0)
        assert ask(meta, 0.0).topics == ()

    def test_touching_returns_whether_a_refresh_is_due(self) -> None:
        meta = state()
        assert meta.touch("t", 0.0)
        apply_response(meta, ask(meta, 0.0), answer(topic("t", [(1, 1)])), 0.0)
        assert not meta.touch("t", 0.0)

    @pytest.mark.parametrize("name", ["", "a b", "x" * 250, ".."])
    def test_a_name_that_would_spoil_the_request_is_refused(self, name: str) -> None:
        meta = state()
        with pytest.raises(InvalidArgument):
            meta.touch(name, 0.0)
        assert ask(meta, 0.0).topics == ()

    def test_unwanted_topics_are_not_taken_from_a_response(self) -> None:
        """Metadata version 0 can't request no topics; its response lists all topics."""
        meta = state()
        view = apply_response(meta, ask(meta, 0.0), answer(topic("t", [(1, 1)])), version=0)
        assert dict(view.topics) == {}


class TestAnswers:
    def test_each_response_makes_a_newer_view(self) -> None:
        meta = ready("t")
        before = meta.view
        meta.need()
        after = apply_response(meta, ask(meta, 1.0), answer(topic("t", [(1, 1)], topic_id=A)), 1.0)
        assert after.version == before.version + 1
        assert after == before

    def test_brokers_controller_and_cluster_id_are_taken(self) -> None:
        view = apply_response(
            state(), MetadataRefresh((), True, 1), answer(brokers=[7], controller_id=7)
        )
        assert dict(view.brokers) == {7: Broker(7, "b7", 9007)}
        assert (view.controller_id, view.cluster_id) == (7, "c")

    def test_no_controller_is_none(self) -> None:
        assert (
            apply_response(
                state(), MetadataRefresh((), True, 1), answer(controller_id=-1)
            ).controller_id
            is None
        )

    def test_leader_epochs_never_go_back(self) -> None:
        meta = ready("t")
        meta.need()
        apply_response(meta, ask(meta, 1.0), answer(topic("t", [(2, 5)], topic_id=A)), 1.0)
        for epoch in (1, 3, 4):
            view = apply_response(
                meta,
                MetadataRefresh(("t",), True, 99),
                answer(topic("t", [(1, epoch)], topic_id=A)),
            )
            assert (view.leader("t", 0), view.leader_epoch("t", 0)) == (2, 5)

    def test_an_epoch_that_no_other_response_has_is_outvoted_in_the_end(self) -> None:
        """Damaged bytes or a wrong broker must not hide the leader for ever."""
        meta = ready("t")
        apply_response(
            meta,
            MetadataRefresh(("t",), True, 99),
            answer(topic("t", [(2, 2**31 - 1)], topic_id=A)),
        )
        seen = [
            apply_response(
                meta, MetadataRefresh(("t",), True, 99), answer(topic("t", [(1, 5)], topic_id=A))
            ).leader_epoch("t", 0)
            for _ in range(metadata_merge.OUTVOTED_AFTER)
        ]
        assert seen == [2**31 - 1] * (metadata_merge.OUTVOTED_AFTER - 1) + [5]
        assert meta.view.leader("t", 0) == 1

    def test_one_broker_that_knows_the_epoch_is_enough_to_keep_it(self) -> None:
        meta = ready("t")
        newest = answer(topic("t", [(2, 6)], topic_id=A))
        apply_response(meta, MetadataRefresh(("t",), True, 99), newest)
        for _ in range(3):
            for _ in range(metadata_merge.OUTVOTED_AFTER - 1):
                stale = answer(topic("t", [(1, 5)], topic_id=A))
                assert (
                    apply_response(meta, MetadataRefresh(("t",), True, 99), stale).leader("t", 0)
                    == 2
                )
            apply_response(meta, MetadataRefresh(("t",), True, 99), newest)

    def test_leader_epochs_do_not_go_back_through_a_moment_of_unknown_topic(self) -> None:
        meta = ready("t")
        apply_response(
            meta, MetadataRefresh(("t",), True, 99), answer(topic("t", [(2, 5)], topic_id=A))
        )
        apply_response(meta, MetadataRefresh(("t",), True, 99), answer(topic("t", error=UNKNOWN)))
        assert meta.view.partition_count("t") is None
        view = apply_response(
            meta, MetadataRefresh(("t",), True, 99), answer(topic("t", [(1, 4)], topic_id=A))
        )
        assert (view.leader("t", 0), view.leader_epoch("t", 0)) == (2, 5)

    def test_a_topic_created_again_is_taken_as_it_is(self) -> None:
        meta = ready("t")
        apply_response(
            meta,
            MetadataRefresh(("t",), True, 99),
            answer(topic("t", [(2, 50), (2, 50)], topic_id=A)),
        )
        view = apply_response(
            meta, MetadataRefresh(("t",), True, 99), answer(topic("t", [(1, 0)], topic_id=B))
        )
        assert (view.leader_epoch("t", 0), view.partition_count("t")) == (0, 1)
        assert view.topic_id("t") == B

    def test_without_ids_a_lower_epoch_is_believed_when_it_is_repeated(self) -> None:
        """Brokers before 2.8 report no ids, and a topic that is created again starts at epoch 0."""
        meta = state()
        meta.pin("t")
        apply_response(meta, MetadataRefresh(("t",), True, 99), answer(topic("t", [(2, 5)])))
        seen = [
            apply_response(
                meta, MetadataRefresh(("t",), True, 99), answer(topic("t", [(1, 0)]))
            ).leader_epoch("t", 0)
            for _ in range(3)
        ]
        assert seen == [5, 5, 0]

    def test_one_good_response_ends_the_doubt(self) -> None:
        meta = state()
        meta.pin("t")
        apply_response(meta, MetadataRefresh(("t",), True, 99), answer(topic("t", [(2, 5)])))
        for epoch in (0, 0, 5, 0, 0):
            apply_response(
                meta, MetadataRefresh(("t",), True, 99), answer(topic("t", [(2, epoch)]))
            )
        assert meta.view.leader_epoch("t", 0) == 5

    def test_a_response_without_brokers_is_refused_and_the_old_view_stays(self) -> None:
        meta = ready("t")
        before = meta.view
        with pytest.raises(ProtocolError, match="no brokers"):
            apply_response(meta, MetadataRefresh(("t",), True, 99), answer(brokers=[]))
        assert meta.view is before

    def test_negative_node_ids_are_no_brokers(self) -> None:
        """Negative ids are those of bootstrap addresses."""
        view = apply_response(
            state(), MetadataRefresh((), True, 1), answer(brokers=[-1, 7, -(2**31)])
        )
        assert list(view.brokers) == [7]
        with pytest.raises(ProtocolError, match="no brokers"):
            apply_response(state(), MetadataRefresh((), True, 1), answer(brokers=[-1]))

    def test_an_error_of_the_whole_response_is_raised(self) -> None:
        with pytest.raises(BrokerError, match="REBOOTSTRAP_REQUIRED"):
            apply_response(
                ready(), MetadataRefresh((), True, 99), answer(error=REBOOTSTRAP), version=13
            )

    def test_another_cluster_behind_the_same_address_starts_from_nothing(self) -> None:
        meta = ready("t", "u")
        apply_response(
            meta, MetadataRefresh(("t", "u"), True, 99), answer(topic("t", [(2, 50)], topic_id=A))
        )
        said = answer(topic("t", [(1, 0)], topic_id=A), cluster_id="other")
        view = apply_response(meta, MetadataRefresh(("t",), False, 99), said)
        assert view.leader_epoch("t", 0) == 0
        assert view.topic("u") is None
        assert ask(meta, 10.0).full

    def test_a_topic_left_out_of_a_response_stays_as_it_was(self) -> None:
        meta = ready("t", "u")
        view = apply_response(
            meta, MetadataRefresh(("t", "u"), True, 99), answer(topic("t", [(1, 2)], topic_id=A))
        )
        assert view.leader("u", 0) == 1

    def test_a_leader_hint_during_a_slow_merge_is_not_lost(self) -> None:
        meta = ready("t", "u")
        said = answer(topic("t", [(1, 1)], topic_id=A), topic("u", [(1, 1)], topic_id=A))
        decoding = MetadataResponse.decode_steps(said.encode(12), 12)
        steps = meta.apply_response_steps(MetadataRefresh(("t", "u"), True, 99), decoding, 12, 0.0)
        for _ in range(3):  # both topics are decoded, the first one is merged
            next(steps)
        assert meta.hint([LeaderHint("t", 0, 2, 7)])
        for _ in steps:
            pass
        assert (meta.view.leader("t", 0), meta.view.leader_epoch("t", 0)) == (2, 7)

    def test_the_new_view_is_not_visible_before_the_last_step(self) -> None:
        """Readers of a view rely on the network's nodes, which are updated right after it."""
        meta = ready("t", "u")
        before = meta.view
        said = answer(topic("t", [(2, 9)], topic_id=A), topic("u", [(2, 9)], topic_id=A))
        decoding = MetadataResponse.decode_steps(said.encode(12), 12)
        for _ in meta.apply_response_steps(
            MetadataRefresh(("t", "u"), True, 99), decoding, 12, 0.0
        ):
            assert meta.view is before
        assert meta.view.leader("u", 0) == 2


class TestHints:
    def test_a_higher_epoch_moves_the_leader_at_once(self) -> None:
        meta = ready("t")
        version = meta.view.version
        assert meta.hint([LeaderHint("t", 0, 2, 2)])
        assert (meta.view.leader("t", 0), meta.view.version) == (2, version + 1)

    @pytest.mark.parametrize("epoch", [0, 1, -1])
    def test_an_epoch_that_is_not_higher_is_no_news(self, epoch: int) -> None:
        meta = ready("t")
        before = meta.view
        assert not meta.hint([LeaderHint("t", 0, 2, epoch)])
        assert meta.view is before

    def test_an_unknown_leader_needs_its_address(self) -> None:
        meta = ready("t")
        assert not meta.hint([LeaderHint("t", 0, 9, 5)])
        assert meta.hint([LeaderHint("t", 0, 9, 5)], [Broker(9, "b9", 9009)])
        assert meta.view.brokers[9].connection_string == "b9:9009"

    @pytest.mark.parametrize("where", [("no", 0), ("t", 5), ("t", -1)])
    def test_hints_about_what_is_not_known_are_ignored(self, where: tuple[str, int]) -> None:
        assert not ready("t").hint([LeaderHint(*where, 2, 5)])


class TestRebootstrap:
    def failing(self, meta: MetadataState, times: int) -> Sequence[bool]:
        now, pools = 1000.0, []
        for _ in range(times):
            step = meta.decide(now)
            while isinstance(step, float):
                now = step
                step = meta.decide(now)
            pools.append(step.bootstrap)
            meta.failed(DOWN, now)
        return pools

    def test_after_all_known_brokers_failed_bootstrap_addresses_take_turns_with_them(self) -> None:
        assert self.failing(ready("t"), 7) == [False, False, False, True, False, True, False]

    def slow(self, meta: MetadataState, seconds: float, times: int) -> Sequence[bool]:
        """``failing``, where each request fails after ``seconds``."""
        now, pools = 1000.0, []
        for _ in range(times):
            step = meta.decide(now)
            while isinstance(step, float):
                now = step
                step = meta.decide(now)
            pools.append(step.bootstrap)
            now += seconds
            meta.failed(DOWN, now)
        return pools

    def test_a_hundred_hanging_brokers_are_not_all_tried_before_bootstrap_is(self) -> None:
        meta = state(rebootstrap_after=100.0)
        apply_response(meta, ask(meta, 0.0), answer(brokers=range(100)))
        assert self.slow(meta, 30.0, 8) == [False] * 4 + [True, False, True, False]

    def test_a_trigger_of_zero_goes_back_after_the_first_failure(self) -> None:
        assert self.slow(ready("t", rebootstrap_after=0.0), 1.0, 3) == [False, True, False]

    def test_a_response_stops_the_clock_of_the_trigger(self) -> None:
        meta = ready("t", rebootstrap_after=100.0)
        for now in (1000.0, 1060.0, 1120.0, 1180.0):
            meta.need()
            asked = ask(meta, now)
            assert not asked.bootstrap
            meta.failed(DOWN, now + 30.0)
            again = ask(meta, now + 40.0)
            assert not again.bootstrap
            apply_response(meta, again, answer(topic("t", [(1, 1)], topic_id=A)), now + 40.0)

    def test_time_without_a_request_does_not_count_for_the_trigger(self) -> None:
        meta = ready("t", rebootstrap_after=100.0)
        assert self.slow(meta, 0.0, 1) == [False]  # long after the first response

    def test_a_broker_that_requires_it_sends_us_back_at_once(self) -> None:
        meta = ready("t")
        asked = ask(meta, 1000.0)
        with pytest.raises(BrokerError) as refused:
            apply_response(meta, asked, answer(error=REBOOTSTRAP), version=13)
        meta.failed(refused.value, 1000.0)
        assert ask(meta, 1001.0).bootstrap
        apply_response(meta, ask(meta, 1001.0), answer(topic("t", [(1, 1)], topic_id=A)), 1001.0)
        meta.need()
        assert not ask(meta, 1002.0).bootstrap

    def test_brokers_are_tried_in_turn_where_bootstrap_addresses_stay_dead(self) -> None:
        meta = ready("t")
        ask(meta, 1000.0)
        meta.failed(broker_error(REBOOTSTRAP, "Metadata failed"), 1000.0)
        assert self.slow(meta, 1.0, 4) == [True, False, True, False]


class TestLook:
    @pytest.mark.parametrize("error", [UNKNOWN, LEADERLESS])
    def test_what_may_still_come_is_waited_for(self, error: int) -> None:
        meta = ready("t")
        apply_response(meta, MetadataRefresh(("t",), True, 99), answer(topic("t", error=error)))
        assert meta.usable_topic("t") is None

    @pytest.mark.parametrize("error", [INVALID, FORBIDDEN])
    def test_what_will_not_come_is_an_error(self, error: int) -> None:
        meta = ready("t")
        apply_response(meta, MetadataRefresh(("t",), True, 99), answer(topic("t", error=error)))
        found = meta.usable_topic("t")
        assert isinstance(found, BrokerError)
        assert found.code == error
        assert "topic t" in str(found)

    def test_a_usable_topic_is_given_even_without_leaders(self) -> None:
        meta = ready("t")
        apply_response(
            meta, MetadataRefresh(("t",), True, 99), answer(topic("t", [(-1, 2)], topic_id=A))
        )
        assert isinstance(meta.usable_topic("t"), Topic)


class TestRequest:
    @pytest.mark.parametrize("version", range(14))
    def test_every_version_can_be_written_with_and_without_topics(self, version: int) -> None:
        for topics in ((), ("t", "u")):
            message = metadata_request(
                MetadataRefresh(topics, True, 1), version, allow_auto_create=False
            )
            again = type(message).decode(message.encode(version), version)
            assert [t.name for t in again.topics or []] == list(topics)

    @pytest.mark.parametrize(("version", "allowed"), [(3, True), (4, False), (13, False)])
    def test_requests_forbid_the_creation_of_topics_from_version_4_on(
        self, version: int, allowed: bool
    ) -> None:
        message = metadata_request(
            MetadataRefresh(("t",), True, 1), version, allow_auto_create=False
        )
        assert message.allow_auto_topic_creation is allowed

    def test_one_topic_makes_a_small_request(self) -> None:
        message = metadata_request(
            MetadataRefresh(("orders",), True, 1), 13, allow_auto_create=False
        )
        assert len(message.encode(13)) < 64


def test_another_brokers_address_from_a_broker_is_used_until_the_next_response() -> None:
    meta = ready("t")
    version, known = meta.view.version, meta.view.brokers[1]
    assert not meta.update_broker(Broker(1, known.host, known.port))
    assert meta.view.version == version
    assert meta.update_broker(Broker(9, "far", 9092))
    assert meta.update_broker(Broker(1, "moved", 9092))
    assert meta.view.version == version + 2
    assert (meta.view.brokers[9].host, meta.view.brokers[1].host) == ("far", "moved")
    assert meta.view.leader("t", 0) == 1
    meta.need()
    apply_response(meta, ask(meta, 1000.0), answer(topic("t", [(1, 1)])), 1000.0)
    assert 9 not in meta.view.brokers
    assert meta.view.brokers[1] == known
