"""The cluster in a test's own loop: one fixture for each scope that such a loop may have.

Registered by ``kafka_cluster`` when the first test needs it, as nothing else needs pytest-asyncio.
The cluster is fresh for each test all the same: the scope only selects the loop that runs it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

import pytest
import pytest_asyncio

from kclient.pytest_plugin import new_cluster

if TYPE_CHECKING:
    from kclient.testing import Cluster

_Scope: TypeAlias = Literal["function", "class", "module", "package", "session"]


def _fixture(scope: _Scope) -> Callable[[pytest.FixtureRequest], AsyncIterator[Cluster]]:
    @pytest_asyncio.fixture(loop_scope=scope, name=f"kafka_cluster_in_{scope}_loop")
    async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
        async with new_cluster(request.node) as started:
            yield started

    return cluster


in_function_loop = _fixture("function")
in_class_loop = _fixture("class")
in_module_loop = _fixture("module")
in_package_loop = _fixture("package")
in_session_loop = _fixture("session")
