"""A history checker: what clients did and were told, held against what the logs have in the end.

``record`` takes down a run, ``writes`` and ``reads`` look for what must never be, ``violations``
names it, ``checker`` puts it together. After Jepsen's ``jepsen.tests.kafka``. Used by the
simulation in ``tests/virtual`` and by whoever breaks a cluster under running clients. It must not
import a client: it sees plain values only, so that it can't share a client's mistakes.
"""

from tests.history.checker import check
from tests.history.record import History, Outcome, Place, Send, Written
from tests.history.violations import Kind, Report, Violation

__all__ = [
    "History",
    "Kind",
    "Outcome",
    "Place",
    "Report",
    "Send",
    "Violation",
    "Written",
    "check",
]
