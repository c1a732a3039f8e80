"""Sequence numbers and epochs: how retries neither double, lose nor reorder records (KIP-98, 360).

Every batch of an idempotent producer carries (producer id, epoch, sequence). The leader appends a
batch only if its sequence follows the last one of that id and epoch in the partition, acknowledges
a duplicate of one of the last five with the same success, and rejects anything else. So:

* A batch keeps the numbers of its first attempt for ever, whichever broker it is sent to.
* A numbered batch that fails (expired, rejected) leaves a possible gap. It is not known yet whether
  the log has it: the partition is UNRESOLVED, numbers no new batch, and learns from the responses
  to the batches behind it. A success behind the gap proves that there is none.
* If the first batch behind the gap is rejected, or no batch is left to learn from, there is a gap,
  or the broker lost our state: the partition is BROKEN. It waits until no response is outstanding
  and then starts at 0 under a new epoch. Only then are waiting batches renumbered, and only those
  known not to be in the log. A broker that responds OUT_OF_ORDER behind a gap remembers us now, but
  may have forgotten us before and appended a later batch first, since a broker without state for
  an id accepts any number (since 2.5): so batches in doubt are sent again under their old numbers,
  one at a time, before anything is renumbered. The log acknowledges those that it has and rejects
  the others. If the broker has forgotten us (UNKNOWN_PRODUCER_ID, or no gap that we know of), a
  batch in doubt fails (``maybe_written``): a new number would hide it from the broker's duplicate
  check, and it could be written twice.
* A log without state for our id accepts any number: so a batch can be written although the one sent
  before it was certainly rejected. The earlier one fails then, instead of being renumbered and
  written behind the later one; likewise if it is uncertain whether the later one was written.
* Only the partition concerned changes its epoch. Epochs end at 32767: then a new producer id.

``ProducerIdentity`` is the producer's part of this; ``PartitionSequences``, next to the partition's
queue, that of one partition, which lives as long as the producer, even if the topic leaves the
metadata. Sequences are counted without end and wrap to 31 bits on the wire. Sans-IO.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from kclient.transitions import step

if TYPE_CHECKING:
    from kclient.errors import KafkaError

MAX_EPOCH = 32767
SEQUENCE_MASK = 0x7FFFFFFF


class ProducerIdAndEpoch(NamedTuple):
    """A producer id with its epoch."""

    producer_id: int
    epoch: int


class IdentityState(enum.Enum):
    """The state of the producer's identity, which batches are numbered with."""

    ABSENT = "no usable id: ask for one when a batch needs it"
    REQUESTED = "InitProducerId is under way"
    READY = "batches can be numbered"
    REFUSED = "the cluster gave none: what waited has failed, the next batch asks again"


class IdentityEvent(enum.Enum):
    """An event of the producer's identity."""

    REQUEST = "InitProducerId was sent"
    GRANT = "the cluster gave an id and epoch"
    REFUSE = "the cluster refuses"
    BUMP = "the epoch was raised"
    EXHAUST = "the epoch can't be raised any more"


_I, _J = IdentityState, IdentityEvent

IDENTITY_TRANSITIONS: dict[IdentityState, dict[IdentityEvent, IdentityState]] = {
    _I.ABSENT: {_J.REQUEST: _I.REQUESTED},
    _I.REQUESTED: {_J.GRANT: _I.READY, _J.REFUSE: _I.REFUSED},
    _I.READY: {_J.BUMP: _I.READY, _J.EXHAUST: _I.ABSENT},
    _I.REFUSED: {_J.REQUEST: _I.REQUESTED},
}


class ProducerIdentity:
    """The producer's id and its newest epoch.

    Attributes:
        state: The state in the machine.
        current: The identity that a partition takes when it starts (over).
        error: The error of the last refusal; None once an identity was granted.
    """

    def __init__(self) -> None:
        self.state = IdentityState.ABSENT
        self.current = ProducerIdAndEpoch(-1, -1)
        self.error: KafkaError | None = None

    def requested(self) -> None:
        """Note that InitProducerId was sent."""
        self._apply(IdentityEvent.REQUEST)

    def granted(self, producer_id: int, epoch: int) -> None:
        """Set the identity that the cluster granted."""
        self._apply(IdentityEvent.GRANT)
        self.error = None
        self.current = ProducerIdAndEpoch(producer_id, epoch)

    def replaced(self, identity: ProducerIdAndEpoch) -> None:
        """Set the identity that the coordinator gave in place of the present one."""
        self._apply(IdentityEvent.BUMP)
        self.current = identity

    def refused(self, error: KafkaError) -> None:
        """Note that the cluster refused an identity with a permanent error."""
        self._apply(IdentityEvent.REFUSE)
        self.error = error

    def newer_than(self, previous: ProducerIdAndEpoch) -> ProducerIdAndEpoch | None:
        """Return an identity to replace ``previous`` in a partition; None if a new id is needed.

        An epoch that another partition already moved to serves as well as a further one, since this
        partition's log has never seen it.
        """
        if self.state is not IdentityState.READY:
            return None
        if previous == self.current:
            if self.current.epoch >= MAX_EPOCH:
                self._apply(IdentityEvent.EXHAUST)
                return None
            self._apply(IdentityEvent.BUMP)
            self.current = ProducerIdAndEpoch(self.current.producer_id, self.current.epoch + 1)
        return self.current

    def fenced(self, previous: ProducerIdAndEpoch) -> None:
        """Discard ``previous``, which was fenced by a newer owner: request another producer id."""
        if self.state is IdentityState.READY and previous == self.current:
            self._apply(IdentityEvent.EXHAUST)

    def _apply(self, event: IdentityEvent) -> None:
        self.state = step(IDENTITY_TRANSITIONS, self.state, event)


class SequenceState(enum.Enum):
    """What is known about one partition's sequence numbers."""

    STEADY = "every number given is acknowledged or still on its way"
    UNRESOLVED = "a number was given up without knowing whether the log has it"
    BROKEN = "the numbers can't go on: wait for all answers, then start over"


class SequenceEvent(enum.Enum):
    """An event of one partition's sequence numbers."""

    GIVE_UP = "a numbered batch has expired or was rejected"
    RESOLVE = "a batch behind the gap was written, so there is no gap"
    BREAK = "a gap is proven, or the broker forgot us"
    RENEW = "started over under a new identity"


_Q, _R = SequenceState, SequenceEvent

SEQUENCE_TRANSITIONS: dict[SequenceState, dict[SequenceEvent, SequenceState]] = {
    _Q.STEADY: {_R.GIVE_UP: _Q.UNRESOLVED, _R.BREAK: _Q.BROKEN},
    _Q.UNRESOLVED: {
        _R.GIVE_UP: _Q.UNRESOLVED,
        _R.RESOLVE: _Q.STEADY,
        _R.BREAK: _Q.BROKEN,
    },
    _Q.BROKEN: {_R.GIVE_UP: _Q.BROKEN, _R.BREAK: _Q.BROKEN, _R.RENEW: _Q.STEADY},
}
