"""The job of one run, and its outcome.

The runner makes a ``Job``, the worker process gets it as JSON and returns an outcome: figures by
name. Adapters in ``clients/`` read it. It has no defaults of any client and imports none.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

LINGER = 0.005
BATCH_SIZE = 128 * 1024
WINDOW = 10_000
"""Records that a produce loop sends before it waits for those of the previous window."""
POLL_RECORDS = 2_000
"""Records that one poll may return, in all clients."""

Outcome = dict[str, Any]


class NotRun(Exception):
    """An entry can't be measured here, and why; the report shows it with that reason."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run of one entry.

    Attributes:
        entry: Its name in ``entries.ENTRIES``.
        records: How many are measured.
        warm_up: How many are written or read before that, unmeasured.
        topics: Where records are written to, or read from.
        warm_topics: What a reader reads before it is measured, with ``warm_partitions`` each.
        partitions: Of each topic.
        spread: Records go to all topics in turn, even if there is only one: jobs that are compared
            by their number of topics or partitions must have the same loop.
        window: Records that a loop sends before it waits for those of the previous window.
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
        """Values alone, to one topic: the loop need not pass anything else."""
        return not (self.keyed or self.headers or self.spread)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        found = json.loads(text)
        job = cls(**found)
        return replace(job, topics=tuple(job.topics), warm_topics=tuple(job.warm_topics))
