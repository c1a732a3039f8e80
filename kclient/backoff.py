"""Exponential back-off with jitter, as KIP-580 has it. Sans-IO: randomness comes in as ``rng``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.frozen import Frozen, frozen

if TYPE_CHECKING:
    import random


@frozen
class Backoff(Frozen):
    """A schedule of waits: ``initial * multiplier ** attempt``, at most ``maximum``, with jitter.

    Attributes:
        initial: Seconds before the first retry.
        maximum: Upper bound in seconds, before the jitter.
        multiplier: Growth per attempt.
        jitter: Fraction by which a wait is moved up or down at random.
    """

    initial: float
    maximum: float
    multiplier: float = 2.0
    jitter: float = 0.2

    def delay(self, attempt: int, rng: random.Random) -> float:
        """Seconds to wait after failure number ``attempt``, counted from 0."""
        # 2.0 ** 1100 overflows; after 64 doublings any sane maximum has long been reached.
        base = min(self.initial * self.multiplier ** min(attempt, 64), self.maximum)
        return base * (1.0 + self.jitter * (2.0 * rng.random() - 1.0))
