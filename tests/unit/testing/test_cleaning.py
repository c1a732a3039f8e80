"""When a broker looks at its logs: after appends, and when a segment comes of age."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from kclient.testing.cleaning import Cleaning
from kclient.testing.log import PartitionLog
from kclient.testing.topic_configs import TopicConfig
from tests.unit.testing.batches import NOW
from tests.unit.testing.keyed import compacted, put, topic, values

CHECK_MS, BACKOFF_MS = 5_000, 1_000


class Entry:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Rig:
    """One log, its cleaning, and a clock that is moved by hand."""

    def __init__(self, config: TopicConfig) -> None:
        self.now_ms = NOW
        self.log = PartitionLog()
        self.config = config
        self.looks = 0
        self._timers: list[tuple[float, int, Entry]] = []
        self.cleaning = Cleaning(self._all, lambda: self.now_ms, self._later, CHECK_MS, BACKOFF_MS)

    def _all(self) -> list[tuple[PartitionLog, TopicConfig]]:
        self.looks += 1
        return [(self.log, self.config)]

    def _later(self, seconds: float, callback: Callable[[], None]) -> Entry:
        entry = Entry(callback)
        heapq.heappush(self._timers, (self.now_ms + seconds * 1000, len(self._timers), entry))
        return entry

    @property
    def due_ms(self) -> float | None:
        """When it wakes next, from NOW on."""
        due = [at for at, _, entry in self._timers if entry.callback]
        assert len(due) <= 1
        return due[0] - NOW if due else None

    def put(self, value: bytes) -> None:
        put(self.log, (b"k", value), timestamp=self.now_ms)
        self.cleaning.note_append(self.config)

    def wait(self, milliseconds: int) -> None:
        end = self.now_ms + milliseconds
        while self._timers and self._timers[0][0] <= end:
            at, _, entry = heapq.heappop(self._timers)
            self.now_ms = int(at)
            if entry.callback is not None:
                callback, entry.callback = entry.callback, None
                callback()
        self.now_ms = end


def test_nothing_is_timed_before_something_was_appended() -> None:
    assert Rig(topic(retention_ms=1)).due_ms is None


def test_a_segment_goes_when_it_comes_of_age_and_then_there_is_no_timer() -> None:
    rig = Rig(topic(retention_ms=20_000))
    rig.put(b"1")
    assert rig.due_ms == CHECK_MS
    rig.wait(CHECK_MS)
    assert rig.due_ms == 20_001
    rig.wait(15_000)
    assert values(rig.log) == [b"1"]
    rig.wait(1)
    assert values(rig.log) == []
    assert rig.due_ms is None
    assert rig.looks == 2


def test_many_appends_make_one_look() -> None:
    rig = Rig(topic(retention_bytes=0))
    for _ in range(100):
        rig.put(b"1")
    rig.wait(CHECK_MS)
    assert (rig.looks, rig.log.size_bytes) == (1, 0)


def test_an_append_looks_earlier_than_what_comes_of_age_late() -> None:
    rig = Rig(topic(retention_ms=900_000, retention_bytes=0))
    rig.put(b"1")
    rig.wait(CHECK_MS)
    rig.put(b"2")
    assert rig.due_ms == 2 * CHECK_MS


def test_compacted_topics_are_looked_at_sooner() -> None:
    rig = Rig(compacted())
    for value in (b"1", b"2", b"3"):
        rig.put(value)
    assert rig.due_ms == BACKOFF_MS
    rig.wait(BACKOFF_MS)
    assert values(rig.log) == [b"2", b"3"]


def test_what_is_kept_for_ever_needs_no_timer() -> None:
    rig = Rig(topic(retention_ms=-1))
    rig.put(b"1")
    assert rig.due_ms is None


def test_a_time_that_is_very_far_away_is_approached_in_steps() -> None:
    rig = Rig(topic(retention_ms=(1 << 63) - 1))
    rig.put(b"1")
    rig.wait(CHECK_MS)
    assert rig.due_ms == CHECK_MS + 30 * 86_400_000


def test_a_closed_one_looks_no_more() -> None:
    rig = Rig(topic(retention_ms=1))
    rig.put(b"1")
    rig.cleaning.close()
    rig.cleaning.close()
    rig.wait(10 * CHECK_MS)
    assert rig.looks == 0
