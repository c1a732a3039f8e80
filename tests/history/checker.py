"""``check``: one history against the final logs. The entry point of this package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.history.reads import Reads
from tests.history.record import History, Logs, Place
from tests.history.violations import Report
from tests.history.writes import check_writes


def check(
    history: History, logs: Logs, *, finished: Mapping[str, Sequence[Place]] | None = None
) -> Report:
    """Return what is wrong.

    Args:
        history: What happened.
        logs: All records of all partitions, in order, at the end of the run.
        finished: By consumer, the partitions that it read until nothing more came, after the last
            fault was over: nothing may be left for it there.

    Raises:
        ValueError: The history can't be judged: two sends have the same value.
    """
    report = Report()
    check_writes(history, logs, report)
    reads = Reads(logs, report)
    reads.walk(history)
    reads.finish(finished or {})
    return report
