"""A TCP proxy before real brokers that knows frames and breaks what a test wants broken."""

from tests.faults.passage import Asked, Passage
from tests.faults.proxy import FaultProxy
from tests.faults.rule import Rule
from tests.faults.rules import (
    After,
    Answer,
    Corrupt,
    Cut,
    Delay,
    Drop,
    Duplicate,
    Edit,
    Hold,
    Ignore,
    Refuse,
    Stall,
    Swallow,
    Throttle,
    Trickle,
    Watch,
)
from tests.faults.session import Session

__all__ = [
    "After",
    "Answer",
    "Asked",
    "Corrupt",
    "Cut",
    "Delay",
    "Drop",
    "Duplicate",
    "Edit",
    "FaultProxy",
    "Hold",
    "Ignore",
    "Passage",
    "Refuse",
    "Rule",
    "Session",
    "Stall",
    "Swallow",
    "Throttle",
    "Trickle",
    "Watch",
]
