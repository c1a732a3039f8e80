"""A history checker: compares clients' calls and their outcomes with the final logs.

``record`` records a run, ``writes`` and ``reads`` find violations, ``violations`` names their
kinds, ``checker`` puts it together. After Jepsen's ``jepsen.tests.kafka``. Used by the simulation
in ``tests/virtual`` and by tests that break a cluster under running clients. It must not import a
client: it sees plain values only, so that it can't share a client's mistakes.
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
