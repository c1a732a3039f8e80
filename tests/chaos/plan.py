"""The faults to inject, their order and distances: they follow from ``Wishes`` and its seed.

The command line makes ``Wishes``, ``run`` a ``Plan`` of them. ``nemesis`` draws faults from it and
chooses where they hit, since no plan can know a partition's leader at that time. Values only: no
clock, no cluster.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

CI_RECORDS, CI_KILLS, CI_STOPS, CI_CUTS = 200_000, 3, 0, 100
STEADY_RATE = 3_000.0
"""Records per second where no number of them is asked for."""
STEADY_CUT = 1.0
"""Seconds between two cuts where no number of them is asked for."""
SETTLE = 6.0
"""Seconds that the load goes on behind the last fault: its window of 5 s must be full."""
KILL_TAKES, STOP_TAKES = 10.0, 15.0
"""Seconds until all is well again, about: only the pace depends on them."""
SHORTEST = 8.0
_AWAY_KILLED, _AWAY_STOPPED = (0.3, 3.0), (5.0, 15.0)
_REST = 1.5
_STEADY_REST = 4.0
_LEAST_CUT = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a run is to reach. None, beside ``minutes``: as many as there is time for.

    Attributes:
        minutes: How long it lasts about; None: until the rest is reached.
        records: Acknowledged ones.
        kills: Leaders that are killed.
        stops: Leaders that are stopped for 5 to 15 s.
        cuts: Connections that are cut while a Produce request is in flight on them.
        producers: How many.
        compression: The codec of all producers, or "mix".
    """

    minutes: float | None = None
    records: int | None = None
    kills: int | None = None
    stops: int | None = None
    cuts: int | None = None
    seed: int = 1
    partitions: int = 12
    producers: int = 7
    compression: str = "mix"

    def complete(self) -> Wishes:
        """Without ``minutes``, use CI's numbers for what isn't given."""
        if self.minutes is not None:
            return self
        return replace(
            self,
            records=CI_RECORDS if self.records is None else self.records,
            kills=CI_KILLS if self.kills is None else self.kills,
            stops=CI_STOPS if self.stops is None else self.stops,
            cuts=CI_CUTS if self.cuts is None else self.cuts,
        )


class Blow(enum.Enum):
    """What happens to a node that leads."""

    KILL = "kill -9"
    STOP = "SIGSTOP"


class Knife(enum.Enum):
    """How a connection is cut that has a Produce request in flight."""

    CLOSE = "closed"
    RESET = "reset"
    REQUEST = "closed within the next request"
    RESPONSE = "closed within the next response"


@dataclass(frozen=True, slots=True)
class NodeFault:
    """A leader is killed or stopped.

    Attributes:
        partition: Its leader is hit.
        rest: Seconds before it, all replicas being in sync.
        away: Seconds until it is started again, or goes on.
    """

    blow: Blow
    partition: int
    rest: float
    away: float


@dataclass(frozen=True, slots=True)
class Cut:
    """A connection is cut.

    Attributes:
        rest: Seconds since the one before.
        depth: How far into a request or response, from 0 to 1.
    """

    knife: Knife
    rest: float
    depth: float


class Plan:
    """The faults of one run, and its pace.

    Attributes:
        seconds: How long it should take.
        rate: Records per second for that.
    """

    def __init__(self, wishes: Wishes) -> None:
        self.wishes = wishes.complete()
        kills, stops = self.wishes.kills or 0, self.wishes.stops or 0
        busy = kills * KILL_TAKES + stops * STOP_TAKES
        least = busy + (kills + stops) * _REST
        asked = 0.0 if self.wishes.minutes is None else self.wishes.minutes * 60.0
        self.seconds = max(least, asked, SHORTEST)
        endless = self.wishes.kills is None or self.wishes.stops is None
        idle = (self.seconds - busy) * 0.9 / max(1, kills + stops)
        self._rest = _STEADY_REST if endless else max(_REST, idle)
        cuts = self.wishes.cuts
        span = (self.seconds - SETTLE) * 0.9
        self._cut_rest = STEADY_CUT if cuts is None else max(_LEAST_CUT, span / max(1, cuts))
        records = self.wishes.records
        paced = 0.0 if records is None else records / (self.seconds + SETTLE)
        self.rate = STEADY_RATE if records is None else max(100.0, paced)

    def node_faults(self) -> Iterator[NodeFault]:
        """One after the other; for ever where no number was asked for."""
        rng = random.Random(f"nodes {self.wishes.seed}")
        for blow in self._blows(rng):
            low, high = _AWAY_KILLED if blow is Blow.KILL else _AWAY_STOPPED
            yield NodeFault(
                blow,
                rng.randrange(self.wishes.partitions),
                self._rest * rng.uniform(0.6, 1.4),
                rng.uniform(low, high),
            )

    def cuts(self) -> Iterator[Cut]:
        """Without an end: those that don't count are made up for."""
        rng = random.Random(f"cuts {self.wishes.seed}")
        while True:
            rest = min(self._cut_rest * 4, rng.expovariate(1 / self._cut_rest))
            yield Cut(rng.choice(list(Knife)), rest, rng.random())

    def _blows(self, rng: random.Random) -> Iterator[Blow]:
        kills, stops = self.wishes.kills, self.wishes.stops
        sure = [Blow.KILL] * (kills or 0) + [Blow.STOP] * (stops or 0)
        rng.shuffle(sure)
        yield from sure
        endless = [
            blow for blow, count in ((Blow.KILL, kills), (Blow.STOP, stops)) if count is None
        ]
        while endless:
            yield rng.choice(endless)
