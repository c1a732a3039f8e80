"""A protocol of workers for the tests of ``GroupMember`` on virtual time, and members of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import kclient
from kclient.errors import KafkaError
from kclient.testing import Cluster

G = "pool"
SETTINGS: dict[str, Any] = {
    "session_timeout": 10.0,
    "heartbeat_interval": 3.0,
    "retry_backoff": 0.02,
    "retry_backoff_max": 0.1,
}


class Pool:
    """Assigns every member the sorted list of all members' metadata, and records its calls.

    Attributes:
        reported: Names of what was called, in order.
        acts: By name, what to do in it.
        offer: What ``metadata`` gives.
    """

    name = "everything"
    type = "test-pool"

    def __init__(self, offer: bytes = b"a") -> None:
        self.reported: list[str] = []
        self.errors: list[KafkaError] = []
        self.acts: dict[str, Callable[[], Awaitable[object] | object]] = {}
        self.offer = offer

    def metadata(self) -> bytes:
        self.reported.append("metadata")
        act = self.acts.get("metadata")
        if act is not None:
            act()
        return self.offer

    async def assign(self, members: Sequence[kclient.JoinedMember]) -> Mapping[str, Any]:
        found = await self._act("assign")
        if found is not None:
            return found  # type: ignore[no-any-return]
        offers = b",".join(sorted(one.metadata for one in members))
        return {one.member_id: offers for one in members}

    async def on_assigned(self, assignment: kclient.GroupAssignment) -> None:
        await self._act("on_assigned")

    async def on_revoked(self, assignment: kclient.GroupAssignment) -> None:
        await self._act("on_revoked")

    async def on_lost(self, error: KafkaError) -> None:
        self.errors.append(error)
        await self._act("on_lost")

    async def _act(self, name: str) -> Any:
        self.reported.append(name)
        act = self.acts.get(name)
        if act is None:
            return None
        found = act()
        return await found if isinstance(found, Awaitable) else found


def member_of(cluster: Cluster | str, pool: Any = None, **settings: Any) -> kclient.GroupMember:
    """A member that isn't started."""
    bootstrap = cluster if isinstance(cluster, str) else cluster.bootstrap
    return kclient.GroupMember(
        bootstrap,
        group=G,
        protocol=pool if pool is not None else Pool(),
        **{**SETTINGS, **settings},
    )
