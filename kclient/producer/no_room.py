"""What becomes of a record for which there is no room, by the door that it came in at."""

from __future__ import annotations

import enum


class NoRoom(enum.Enum):
    """What to do with a record that doesn't fit."""

    PARK = "park it, as send does"
    REFUSE = "raise BufferFull, as enqueue_nowait does"
