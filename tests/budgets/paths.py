"""All hot paths, in the order of the table."""

from __future__ import annotations

from tests.budgets import reading, records, serving, wire, writing

PATHS = (*records.PATHS, *writing.PATHS, *reading.PATHS, *wire.PATHS, *serving.PATHS)
