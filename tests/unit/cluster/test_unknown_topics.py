"""Unknown topics: for how long, and by how many brokers, an absence must be reported to count."""

from __future__ import annotations

import pytest

from kclient.cluster.metadata import MetadataRefresh, MetadataState
from kclient.protocol.messages.metadata import MetadataResponse
from tests.unit.cluster.answers import answer, topic
from tests.unit.cluster.test_metadata import FORBIDDEN, LEADERLESS, UNKNOWN, ask, state


class TestUnknown:
    """How long, and by which brokers, a topic was reported unknown."""

    def _reported(self, *reported: tuple[float, int, int], name: str = "t") -> MetadataState:
        """Return a state with these reports (time, node id, error code) about ``name``."""
        meta = state()
        meta.pin(name)
        for now, node_id, error in reported:
            said = answer(topic(name, [] if error else [(1, 1)], error=error))
            decoding = MetadataResponse.decode_steps(said.encode(12), 12)
            question = MetadataRefresh((name,), True, 99, at=now - 0.5)
            for _ in meta.apply_response_steps(question, decoding, 12, now, node_id):
                pass
        return meta

    def test_two_brokers_must_report_it_for_as_long_as_asked(self) -> None:
        early = (10.0, 1, UNKNOWN), (11.0, 2, UNKNOWN)
        assert not self._reported(*early).unknown_topics.is_confirmed("t", 2, 0.0, 5.0)
        meta = self._reported(*early, (14.9, 1, UNKNOWN))
        assert not meta.unknown_topics.is_confirmed("t", 2, 0.0, 5.0)
        meta = self._reported(*early, (15.0, 1, UNKNOWN))
        assert meta.unknown_topics.is_confirmed("t", 2, 0.0, 5.0)

    def test_one_broker_of_several_must_report_it_for_twice_as_long(self) -> None:
        early = (10.0, 1, UNKNOWN), (15.0, 1, UNKNOWN), (16.0, -1, UNKNOWN)
        meta = self._reported(*early, (19.9, 1, UNKNOWN))
        assert not meta.unknown_topics.is_confirmed("t", 2, 0.0, 5.0)
        meta = self._reported(*early, (20.0, 1, UNKNOWN))
        assert meta.unknown_topics.is_confirmed("t", 2, 0.0, 5.0)

    def test_the_time_counts_from_when_it_is_asked_for(self) -> None:
        early = [(now, node, UNKNOWN) for now in (10.0, 101.0) for node in (1, 2)]
        meta = self._reported(*early, (104.9, 1, UNKNOWN))
        assert not meta.unknown_topics.is_confirmed("t", 2, 100.0, 5.0)
        meta = self._reported(*early, (105.0, 1, UNKNOWN))
        assert meta.unknown_topics.is_confirmed("t", 2, 100.0, 5.0)

    def test_what_was_asked_before_counts_for_nothing(self) -> None:
        early = (10.0, 1, UNKNOWN), (11.0, 2, UNKNOWN)
        assert not self._reported(*early).unknown_topics.is_confirmed("t", 1, 90.0, 5.0)
        meta = self._reported(*early, (109.9, 2, UNKNOWN))  # one of two
        assert not meta.unknown_topics.is_confirmed("t", 2, 100.0, 5.0)
        meta = self._reported(*early, (110.0, 2, UNKNOWN))
        assert meta.unknown_topics.is_confirmed("t", 2, 100.0, 5.0)
        meta = self._reported(*early, (110.4, 2, UNKNOWN))  # requested at 109.9
        assert not meta.unknown_topics.is_confirmed("t", 1, 110.0, 0.0)

    def test_a_topic_that_was_there_is_asked_for_until_its_absence_is_sure(self) -> None:
        known = self._reported((9.0, 1, 0), (10.0, 1, UNKNOWN))
        assert ask(known, 12.0).topics == ("t",)
        known = self._reported(
            (9.0, 1, 0), (10.0, 1, UNKNOWN), (11.0, 2, UNKNOWN), (14.9, 2, UNKNOWN)
        )
        assert ask(known, 17.0).topics == ("t",)
        known = self._reported(
            (9.0, 1, 0), (10.0, 1, UNKNOWN), (11.0, 2, UNKNOWN), (15.0, 2, UNKNOWN)
        )
        assert isinstance(known.decide(40.0), float)
        known = self._reported((9.0, 1, 0), (10.0, 1, UNKNOWN), (11.0, 2, 0))
        assert isinstance(known.decide(40.0), float)
        never = self._reported((10.0, 1, UNKNOWN))  # its waiters request it
        assert isinstance(never.decide(40.0), float)

    @pytest.mark.parametrize("error", [0, LEADERLESS, FORBIDDEN])
    def test_another_response_ends_it(self, error: int) -> None:
        meta = self._reported((10.0, 1, UNKNOWN), (11.0, 2, UNKNOWN), (20.0, 1, error))
        assert not meta.unknown_topics.is_confirmed("t", 2, 0.0, 5.0)
        early = (10.0, 1, UNKNOWN), (12.0, 1, error), (13.0, 2, UNKNOWN)
        meta = self._reported(*early, (22.9, 2, UNKNOWN))
        assert not meta.unknown_topics.is_confirmed("t", 2, 0.0, 5.0)

    def test_nothing_is_known_of_a_topic_without_requests(self) -> None:
        meta = self._reported((10.0, 1, UNKNOWN), (99.0, 2, UNKNOWN))
        assert not meta.unknown_topics.is_confirmed("u", 2, 0.0, 5.0)

    def test_it_is_forgotten_with_the_topic(self) -> None:
        meta = self._reported((10.0, 1, UNKNOWN), (99.0, 2, UNKNOWN))
        meta.unpin("t", 100.0)
        assert ask(meta, 9999.0).topics == ()
        assert not meta.unknown_topics.is_confirmed("t", 2, 0.0, 5.0)
