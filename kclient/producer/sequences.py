"""The numbers of one partition's batches, as a state machine; ``idempotence`` has its theory.

One source, two builds: compiled as ``_sequences_c`` with the C types of ``_sequences_c.pxd``;
others take ``PartitionSequences`` from ``kclient.producer.hot``. Its partition's queue owns it.
Sans-IO.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.producer.idempotence import SEQUENCE_TRANSITIONS, SequenceEvent, SequenceState
from kclient.transitions import step

if TYPE_CHECKING:
    import cython  # type: ignore[import-untyped]

    from kclient.producer.idempotence import Identity
else:
    from kclient.record import _cython as cython

_STEADY = SequenceState.STEADY
_UNRESOLVED = SequenceState.UNRESOLVED


@cython.cclass
class PartitionSequences:
    """One partition's numbering.

    Attributes:
        state: What is known.
        identity: Who numbers; None before the first batch.
        next: Count that the next new batch gets.
        acked_end: Count after the last acknowledged record.
        gap_end: Count after the last batch that was given up, while UNRESOLVED.
    """

    __slots__ = ("acked_end", "gap_end", "identity", "next", "state")

    def __init__(self) -> None:
        self.state = _STEADY
        self.identity: Identity | None = None
        self.next = 0
        self.acked_end = 0
        self.gap_end = 0

    def take(self, count: int) -> int:
        """Give ``count`` numbers away; return the first."""
        first = self.next
        self.next += count
        return first

    def acknowledged(self, end: int) -> None:
        """The log has everything before ``end``."""
        if end > self.acked_end:
            self.acked_end = end
        if self.state is _UNRESOLVED and self.acked_end >= self.gap_end:
            self._apply(SequenceEvent.RESOLVE)

    def given_up(self, end: int) -> None:
        """A batch whose numbers end at ``end`` won't be sent again."""
        if end <= self.acked_end:
            return  # a later batch was written, so the log has this one as well
        self.gap_end = max(self.gap_end, end)
        self._apply(SequenceEvent.GIVE_UP)

    def broken(self) -> None:
        """The numbers can't go on."""
        self._apply(SequenceEvent.BREAK)

    def start(self, identity: Identity) -> None:
        """Number this partition's first batch under ``identity``."""
        if self.identity is not None:
            raise RuntimeError("a partition starts once; later identities come by renew()")
        self.identity = identity

    def renew(self, identity: Identity) -> None:
        """Start over at 0 under ``identity``."""
        self._apply(SequenceEvent.RENEW)
        self.identity = identity
        self.next = self.acked_end = self.gap_end = 0

    def _apply(self, event: SequenceEvent) -> None:
        self.state = step(SEQUENCE_TRANSITIONS, self.state, event)
