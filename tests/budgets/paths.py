"""All hot paths, in the order of the table."""

from __future__ import annotations

from tests.budgets import records

PATHS = (*records.PATHS,)
