"""What an event loop may put in place of the real world: network, wall clock, chance, effort.

A loop of virtual time carries it as ``loop.kclient_surroundings``; a client that starts there uses
it by itself, so that a service under test needs no plumbing. It must not be consulted per record.
"""

from __future__ import annotations

import random
from asyncio.events import _get_running_loop
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from kclient.hooks import Dialer


class Surroundings(Protocol):
    """What clients ask of the world, beside the loop's own timers."""

    @property
    def dialer(self) -> Dialer:
        """Opens the connections of clients that were given no other dialer."""
        ...

    @property
    def rng(self) -> random.Random:
        """Seeds the randomness of clients, in the order of their starts."""
        ...

    def wall_ns(self) -> int:
        """Int nanoseconds since the Unix epoch."""
        ...

    def effort(self) -> float:
        """Seconds of work done, as far as that world counts it: when to let others run."""
        ...


def surroundings() -> Surroundings | None:
    """Those of the running loop; None in the real world, and where no loop runs."""
    return cast("Surroundings | None", getattr(_get_running_loop(), "kclient_surroundings", None))


def effort_clock(real: Callable[[], float]) -> Callable[[], float]:
    """What tells a loop of work when to let others run: ``real``, or that of the surroundings."""
    world = surroundings()
    return real if world is None else world.effort
