"""``HotPath``: one way that records take, which can be prepared for any number of them.

The files beside this one list theirs; ``workload`` runs them. What ``prepare`` does before it gives
the function away isn't counted, and neither is what follows.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

FACTOR = 3
"""The larger run has so many times the records of the smaller one: what both share drops out."""

Step = Callable[[], object]
"""What is counted. Its result is kept until it was looked at, since it holds retained memory."""


@dataclass(frozen=True, slots=True)
class HotPath:
    """One row of the table of budgets.

    Attributes:
        name: Its key in the file.
        about: What is counted, in a line.
        prepare: Sets the stage for so many records (or requests) and gives the step.
        count: Of records in the smaller run; the larger one has three times as many.
        pure: It is counted on the pure build too.
    """

    name: str
    about: str
    prepare: Callable[[int], AbstractContextManager[Step]]
    count: int
    pure: bool = False
