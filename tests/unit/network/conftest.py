"""The fixture of the network tests: a bench whose clients are closed at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest_asyncio

from tests.unit.network.bench import Bench


@pytest_asyncio.fixture
async def bench() -> AsyncIterator[Bench]:
    """Yield a bench; its clients are closed at the end, and no listener may have failed."""
    async with AsyncExitStack() as stack:
        bench = Bench(stack)
        yield bench
    assert bench.faults == []
