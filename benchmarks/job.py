"""What one run is told to do, and what it tells back.

The runner makes a ``Job``, the worker process gets it as JSON and answers with an outcome: figures
by name. Adapters in ``clients/`` read it. Holds no defaults of any client and imports none.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

LINGER = 0.005
BATCH_SIZE = 128 * 1024
WINDOW = 10_000
"""Records that a produce loop hands over before it waits for those of the window before."""
POLL_RECORDS = 2_000
"""Records that one poll may give, in all clients."""

Outcome = dict[str, Any]


class NotRun(Exception):
    """An entry that can't be measured here, and why; it is shown with that, not dropped."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run of one entry.

    Attributes:
        entry: Its name in ``entries.ENTRIES``.
        records: How many are measured.
        warm_up: How many go before, unmeasured.
        topics: Where records go to, or come from.
        warm_topics: What a reader reads before it is measured, with ``warm_partitions`` each.
        partitions: Of each topic.
        spread: Records go round all topics, even if there is only one: the loops of jobs that are
            compared over their number of topics or partitions must be the same.
        window: Records that a loop hands over before it waits for those of the window before.
        tuned: The client's own best settings instead of the equal ones.
    """

    entry: str
    bootstrap: str
    records: int
    topics: tuple[str, ...] = ()
    warm_topics: tuple[str, ...] = ()
    warm_up: int = 5_000
    warm_partitions: int = 1
    partitions: int = 4
    size: int = 100
    codec: str = "none"
    keyed: bool = False
    headers: bool = False
    linger: float = LINGER
    batch_size: int = BATCH_SIZE
    spread: bool = False
    window: int = WINDOW
    loop: str = "asyncio"
    pure: bool = False
    ca: str | None = None
    tuned: bool = False

    @property
    def topic(self) -> str:
        return self.topics[0]

    @property
    def plain(self) -> bool:
        """Values alone, to one topic: the loop need not hand over anything else."""
        return not (self.keyed or self.headers or self.spread)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        found = json.loads(text)
        job = cls(**found)
        return replace(job, topics=tuple(job.topics), warm_topics=tuple(job.warm_topics))
