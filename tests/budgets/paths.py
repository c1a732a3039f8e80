"""All hot paths, in the order of the table."""

from __future__ import annotations

from tests.budgets import reading, records, wire, writing

PATHS = (*records.PATHS, *writing.PATHS, *reading.PATHS, *wire.PATHS)
