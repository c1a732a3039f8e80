"""Links inside a cluster: which brokers are partitioned, and the fate of messages in flight."""

from __future__ import annotations

from collections.abc import Callable

from kclient.testing.control_plane import BrokerLinks


class Later:
    """Timers that run when the test calls ``run``."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Callable[[], None]]] = []

    def __call__(self, seconds: float, callback: Callable[[], None]) -> None:
        self.waiting.append((seconds, callback))

    def run(self) -> None:
        waiting, self.waiting = self.waiting, []
        for _, callback in waiting:
            callback()


def test_all_reach_all_until_they_are_parted_both_ways() -> None:
    links = BrokerLinks()
    assert links.reachable(1, 2)
    links.part([(2, 1)])
    assert not links.reachable(1, 2)
    assert not links.reachable(2, 1)
    assert links.reachable(1, 3)
    assert links.parted == [(1, 2)]


def test_ways_are_mended_one_by_one_or_all() -> None:
    links = BrokerLinks()
    links.part([(1, 2), (1, 3), (2, 3)])
    links.join([(2, 1)])
    assert links.parted == [(1, 3), (2, 3)]
    links.join()
    assert links.parted == []


def test_listeners_are_notified_of_changes_only() -> None:
    links = BrokerLinks()
    heard: list[int] = []
    links.listen(lambda: heard.append(len(links.parted)))
    links.part([(1, 2)])
    links.part([(2, 1)])
    links.join([(1, 3)])
    links.join([(1, 2)])
    links.join()
    assert heard == [1, 0]


def test_messages_arrive_at_once_unless_the_two_are_parted() -> None:
    links = BrokerLinks()
    came: list[str] = []
    links.part([(1, 2)])
    links.send(1, 2, lambda: came.append("parted"))
    links.send(1, 3, lambda: came.append("other way"))
    links.send(2, 2, lambda: came.append("itself"))
    assert came == ["other way", "itself"]


def test_delayed_messages_arrive_if_the_link_is_there_then() -> None:
    links, later = BrokerLinks(), Later()
    links.delay, links.later = lambda sender, receiver: sender + receiver / 10, later
    came: list[str] = []
    links.send(1, 2, lambda: came.append("first"))
    assert came == []
    assert [seconds for seconds, _ in later.waiting] == [1.2]
    later.run()
    assert came == ["first"]
    links.send(1, 2, lambda: came.append("lost"))
    links.part([(1, 2)])
    later.run()
    assert came == ["first"]


def test_messages_to_oneself_take_no_time() -> None:
    links, later = BrokerLinks(), Later()
    links.delay, links.later = lambda sender, receiver: 1.0, later
    came: list[int] = []
    links.send(1, 1, lambda: came.append(1))
    assert (came, later.waiting) == ([1], [])
