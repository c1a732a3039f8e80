"""All topics, for pattern subscriptions: when they are listed, and what that changes."""

from __future__ import annotations

import asyncio

import pytest

from kclient.broker_errors import UnknownTopicOrPartition
from kclient.cluster.metadata import MetadataRefresh, MetadataState, metadata_request
from kclient.cluster.topic import Topic
from kclient.protocol.message import Request
from kclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.views import topic_of, view_of
from tests.unit.cluster.answers import A, B, answer, topic
from tests.unit.cluster.test_metadata import apply_response, ask, ready, state
from tests.unit.cluster.test_updater import make, running
from tests.unit.cluster.virtual import Answer, FakeNetwork, Script, run

UNKNOWN = 3


def listed(*names: str) -> MetadataResponse:
    return answer(*[topic(name, [(1, 1)], topic_id=name.encode().ljust(16)) for name in names])


def watching(*names: str, **settings: float) -> MetadataState:
    """Return a state with a watcher of all topics and a fresh listing of ``names``."""
    meta = state(**settings)
    meta.watch_all()
    apply_response(meta, ask(meta, 0.0), listed(*names))
    return meta


class TestSchedule:
    def test_all_are_listed_without_names_while_there_is_a_watcher(self) -> None:
        meta = ready("t")
        assert meta.watch_all()
        asked = ask(meta, 1.0)
        assert (asked.topics, asked.full, asked.all_topics) == ((), True, True)

    def test_the_first_list_does_not_wait_for_the_back_off(self) -> None:
        meta = ready("t", now=0.0)
        meta.watch_all()
        assert ask(meta, 0.001).all_topics

    def test_a_second_watcher_asks_for_nothing(self) -> None:
        meta = watching("t")
        assert not meta.watch_all()
        assert meta.decide(1.0) == 300.0

    def test_it_is_listed_again_by_age_and_by_need(self) -> None:
        meta = watching("t", max_age=300.0)
        assert meta.decide(1.0) == 300.0
        apply_response(meta, ask(meta, 300.0), listed("t"), 300.0)
        assert meta.decide(301.0) == 600.0
        meta.need_listing()
        assert ask(meta, 302.0).all_topics

    def test_what_is_needed_by_name_is_asked_for_by_name(self) -> None:
        meta = watching("t", "u")
        meta.pin("t")
        assert ask(meta, 1.0) == MetadataRefresh(
            ("t",), False, meta._needs.serial, untried_broker=False
        )
        meta = watching("t", "u")
        meta.touch("t", 1.0)
        apply_response(meta, ask(meta, 1.0), listed("t"), 1.0)
        meta.leader_unreachable(1, 2.0)
        asked = ask(meta, 3.0)
        assert (asked.topics, asked.full, asked.all_topics) == (("t",), True, False)

    def test_looks_for_a_leader_do_not_put_the_list_off(self) -> None:
        meta = watching("t", max_age=300.0)
        meta.pin("t")
        for now in range(10, 300, 10):
            meta.need()
            asked = ask(meta, float(now))
            assert not asked.all_topics
            apply_response(meta, asked, listed("t"), float(now))
        assert ask(meta, 300.0).all_topics

    def test_lists_take_a_tenth_of_the_time_at_most_and_needs_of_the_wanted_do_not_wait(
        self,
    ) -> None:
        meta = watching("t", "u")
        meta.pin("t")
        apply_response(meta, ask(meta, 1.0), listed("t"), 1.0)
        meta.listing = 0.5
        meta.need_listing()
        assert meta.decide(2.0) == pytest.approx(5.0)
        meta.need()
        assert ask(meta, 2.0).topics == ("t",)

    def test_a_list_counts_as_a_refresh_of_what_is_wanted(self) -> None:
        meta = watching("t", max_age=300.0)
        meta.pin("t")
        meta.need()
        meta.need_listing()
        apply_response(meta, ask(meta, 100.0), listed("t"), 100.0)
        assert meta.refreshed_at == 100.0
        assert meta.decide(101.0) == 400.0

    def test_the_list_comes_first_of_all_where_it_is_wanted_before_the_start(self) -> None:
        meta = state()
        meta.watch_all()
        assert meta.decide(0.0) == MetadataRefresh((), True, 2, bootstrap=True, all_topics=True)

    def test_after_the_last_watcher_only_the_wanted_are_asked_for(self) -> None:
        meta = watching("t", "u")
        meta.watch_all()
        meta.pin("t")
        meta.unwatch_all()
        assert ask(meta, 400.0).all_topics
        apply_response(meta, ask(meta, 400.0), listed("t", "u"), 400.0)
        meta.unwatch_all()
        meta.unwatch_all()  # one more than the watchers
        asked = ask(meta, 800.0)
        assert (asked.topics, asked.all_topics) == (("t",), False)
        assert meta.watch_all()


class TestView:
    def test_all_that_are_listed_are_in_it(self) -> None:
        meta = watching("t", "u", "v")
        assert set(meta.view.topics) == {"t", "u", "v"}

    def test_unlisted_topics_leave_and_new_ones_enter(self) -> None:
        meta = watching("t", "u")
        meta.need_listing()
        view = apply_response(meta, ask(meta, 1.0), listed("u", "v"), 1.0)
        assert set(view.topics) == {"u", "v"}

    def test_a_response_by_name_leaves_the_others_there(self) -> None:
        meta = watching("t", "u")
        meta.pin("t")
        view = apply_response(meta, ask(meta, 1.0), listed("t"), 1.0)
        assert set(view.topics) == {"t", "u"}
        meta.need()
        asked = ask(meta, 2.0)
        assert asked.full
        assert set(apply_response(meta, asked, listed("t"), 2.0).topics) == {"t", "u"}

    def test_epochs_of_unwanted_topics_do_not_go_back_either(self) -> None:
        meta = state()
        meta.watch_all()
        for now, epoch in enumerate((5, 4)):
            meta.need_listing()
            said = answer(topic("t", [(epoch, epoch)], topic_id=A))
            apply_response(meta, ask(meta, float(now)), said, float(now))
        assert meta.view.leader_epoch("t", 0) == 5

    def test_the_history_of_a_deleted_topic_is_forgotten(self) -> None:
        meta = watching("u")
        for now, reported in enumerate((A, B, None, A), start=1):
            meta.need_listing()
            said = () if reported is None else (topic("t", [(1, 1)], topic_id=reported),)
            apply_response(
                meta, ask(meta, float(now)), answer(topic("u", [(1, 1)]), *said), float(now)
            )
        assert meta.view.topic_id("t") == A
        assert not meta._past._former_ids

    def test_a_wanted_topic_that_is_not_listed_is_asked_for_by_name(self) -> None:
        """The listing may hide a topic, or the broker may create it on a request by name."""
        meta = watching("t", "u")
        meta.pin("t")
        apply_response(meta, ask(meta, 1.0), listed("t"), 1.0)
        meta.need_listing()
        apply_response(meta, ask(meta, 2.0), listed("u"), 2.0)
        assert meta.view.leader("t", 0) == 1
        asked = ask(meta, 3.0)
        assert (asked.topics, asked.full, asked.all_topics) == (("t",), False, False)
        apply_response(meta, asked, answer(topic("t", error=UNKNOWN)), 3.0)
        assert meta.view.topic_error("t") == UNKNOWN
        assert list(meta.view.listed) == ["u"]
        for now in (4.0, 13.0):  # again, until its absence is confirmed
            apply_response(meta, ask(meta, now), answer(topic("t", error=UNKNOWN)), now)
        assert meta.decide(14.0) == 302.0

    def test_what_a_list_lacks_is_asked_for_by_name_before_the_next_list(self) -> None:
        meta = watching("t", "u")
        meta.pin("t")
        apply_response(meta, ask(meta, 1.0), listed("t"), 1.0)
        kinds = []
        for now in range(2, 10):  # the listing is requested again and again
            meta.need()
            meta.need_listing()
            asked = ask(meta, float(now))
            said = listed("u") if asked.all_topics else answer(topic("t", error=UNKNOWN))
            kinds.append("list" if asked.all_topics else asked.topics)
            apply_response(meta, asked, said, float(now))
        assert kinds == ["list", ("t",)] * 4

    def test_the_others_leave_with_the_first_response_after_the_last_watcher(self) -> None:
        meta = watching("t", "u")
        meta.pin("t")
        meta.unwatch_all()
        view = apply_response(meta, ask(meta, 1.0), listed("t"), 1.0)
        assert set(view.topics) == {"t"}

    def test_a_list_that_arrives_after_the_last_watcher_left_is_for_the_wanted(self) -> None:
        meta = state()
        meta.watch_all()
        meta.pin("t")
        asked = ask(meta, 0.0)
        meta.unwatch_all()
        view = apply_response(meta, asked, listed("t", "u"))
        assert set(view.topics) == {"t"}

    def test_a_list_requested_before_a_watcher_came_does_not_count_for_it(self) -> None:
        meta = watching("t")
        meta.need_listing()
        asked = ask(meta, 1.0)
        meta.unwatch_all()
        meta.watch_all()
        apply_response(meta, asked, listed("t", "u"), 1.0)
        assert ask(meta, 2.0).all_topics

    def test_internal_topics_and_those_with_errors(self) -> None:
        view = view_of(
            topics=[
                Topic.of_columns("mine", A, True, 0, [1], [1], [b""]),
                topic_of("broken", error=UNKNOWN),
                Topic.of_columns("t", A, False, 0, [1], [1], [b""]),
                topic_of("empty"),
            ]
        )
        assert [view.is_internal(name) for name in ("mine", "t", "nowhere")] == [True, False, False]
        assert view.is_internal("__consumer_offsets")
        assert list(view.listed) == ["mine", "t"]


class TestRequest:
    @pytest.mark.parametrize("version", range(14))
    def test_all_topics_are_null_or_in_the_first_version_none(self, version: int) -> None:
        message = metadata_request(
            MetadataRefresh((), True, 1, all_topics=True), version, allow_auto_create=True
        )
        again = MetadataRequest.decode(message.encode(version), version)
        assert again.topics == ([] if version == 0 else None)


def listing(names: list[str], delay: float = 0.0) -> Script:
    """Script a cluster of these topics, as they are at the time of the request."""

    def script(node: int, request: Request, version: int) -> Answer:
        assert isinstance(request, MetadataRequest)
        if request.topics is None:
            return Answer(listed(*names), delay)
        asked = [one.name or "" for one in request.topics]
        known = [topic(n, [(1, 1)], topic_id=n.encode().ljust(16)) for n in asked if n in names]
        return Answer(answer(*known, *[topic(n, error=UNKNOWN) for n in asked if n not in names]))

    return script


def lists(network: FakeNetwork) -> int:
    """Count the requests for all topics."""
    return sum(getattr(request, "topics", ()) is None for _, _, request in network.sent)


def test_new_and_deleted_topics_are_noticed_by_age_and_on_request() -> None:
    async def main() -> None:
        names = ["t"]
        network = FakeNetwork(listing(names))
        updater = make(network, max_age=300.0)
        updater.watch_all()
        async with running(updater):
            await asyncio.sleep(1.0)
            names[:] = ["u"]
            updater.request_update()
            await asyncio.sleep(1.0)
            assert list(updater.view.listed) == ["u"]
            names.append("v")
            await asyncio.sleep(300.0)
            assert list(updater.view.listed) == ["u", "v"]
            assert lists(network) == 3
            await asyncio.sleep(3600.0)
            assert lists(network) == 15

    run(main())


def test_a_deleted_topic_that_is_wanted_stays_with_its_error() -> None:
    async def main() -> None:
        names = ["t", "u"]
        updater = make(FakeNetwork(listing(names)))
        updater.watch_all()
        updater.add_topic("t")
        async with running(updater):
            await asyncio.sleep(1.0)
            names.remove("t")
            updater.request_update()
            await asyncio.sleep(2.0)
            assert updater.view.topic_error("t") == UNKNOWN
            assert list(updater.view.listed) == ["u"]
            with pytest.raises(UnknownTopicOrPartition):
                await updater.wait_for_topic("t", 30.0)

    run(main())
