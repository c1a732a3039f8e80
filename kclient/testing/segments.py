"""Where a log's segments begin, found when somebody wants to know instead of at each append.

Kafka keeps a log in files: a new one begins where the last would grow over ``segment.bytes`` or its
first batch is ``segment.ms`` older than the next one. Here the batches are one list, and the
cleaner (``log_cleaner.py``) works in the segments that those files would be. The last segment is
the active one. Rules only; nothing is deleted or written here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from kclient.testing.stored_batch import StoredBatch


class Segments:
    """The segments of one log.

    Attributes:
        bases: The offset that each segment begins with; the last one is the active segment's.
        first_dirty: Compaction has been over what lies below this offset.
    """

    def __init__(self, start_offset: int = 0) -> None:
        self.bases = [start_offset]
        self.first_dirty = start_offset
        self._counted = start_offset
        self._size = 0
        self._first_time = -1

    @property
    def active_base(self) -> int:
        """Where the active segment begins."""
        return self.bases[-1]

    @property
    def counted_to(self) -> int:
        """Batches from this offset on have not been looked at yet."""
        return self._counted

    def note(self, batches: Iterable[StoredBatch], segment_bytes: int, segment_ms: int) -> None:
        """Take the batches from ``counted_to`` on, and begin segments where Kafka would.

        Args:
            batches: In order.
            segment_bytes: Most in a segment of more than one batch.
            segment_ms: Most between the first batch's time and another's, in milliseconds.
        """
        for batch in batches:
            if self._size and (
                self._size + batch.size_bytes > segment_bytes
                or (self._first_time >= 0 and batch.max_timestamp - self._first_time > segment_ms)
            ):
                self.roll(batch.base_offset)
            if not self._size:
                self._first_time = batch.max_timestamp
            self._size += batch.size_bytes
            self._counted = batch.next_offset

    def roll(self, offset: int) -> None:
        """Begin a segment at ``offset``, the log's end, unless the active one is empty."""
        if offset > self.bases[-1]:
            self.bases.append(offset)
        self._counted = max(self._counted, offset)
        self._size = 0
        self._first_time = -1

    def truncate_start(self, offset: int) -> None:
        """The log begins at ``offset``: segments wholly below it are gone."""
        first = bisect_right(self.bases, offset) - 1
        if first > 0:
            del self.bases[:first]
        self.first_dirty = max(self.first_dirty, offset)

    def truncate_end(self, offset: int) -> None:
        """The log ends at ``offset``: the segment that holds it is the active one again."""
        keep = max(bisect_left(self.bases, offset), 1)
        del self.bases[keep:]
        self.bases[0] = min(self.bases[0], offset)
        self.first_dirty = min(self.first_dirty, offset)
        self._counted = self.bases[-1]
        self._size = 0
        self._first_time = -1
