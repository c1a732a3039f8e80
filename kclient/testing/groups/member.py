"""``Member``: one member of a classic group, and the answers that it waits for.

Held by ``ClassicGroup``. A member keeps the function that answers its parked JoinGroup or
SyncGroup; calling it for a connection that is gone does nothing. No rules of rebalancing here.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import TypeAlias

from kclient.protocol.messages.join_group import JoinGroupResponse
from kclient.protocol.messages.sync_group import SyncGroupResponse

JoinReply: TypeAlias = Callable[[JoinGroupResponse], None]
SyncReply: TypeAlias = Callable[[SyncGroupResponse], None]
Protocols: TypeAlias = tuple[tuple[str, bytes], ...]


@dataclass(slots=True, eq=False)
class Member:
    """One member.

    Attributes:
        member_id: Given by the coordinator.
        instance_id: ``group.instance.id`` of a static member (KIP-345).
        client_id: As the client calls itself.
        client_host: Where it came from, in Java's spelling.
        rebalance_timeout_ms: How long it may take to rejoin.
        session_timeout_ms: How long it may be silent.
        protocol_type: ``consumer``, ``connect``, ...
        protocols: (name, metadata), the preferred one first.
        assignment: From the leader, opaque.
        is_new: Its first JoinGroup is still parked: its session runs out all the same.
        join_reply: Answers the parked JoinGroup.
        sync_reply: Answers the parked SyncGroup.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    join_reply: JoinReply | None = field(default=None, repr=False)
    sync_reply: SyncReply | None = field(default=None, repr=False)

    @property
    def is_static(self) -> bool:
        """It has a ``group.instance.id``."""
        return self.instance_id is not None

    @property
    def awaits_join(self) -> bool:
        """Its JoinGroup is parked."""
        return self.join_reply is not None

    @property
    def awaits_sync(self) -> bool:
        """Its SyncGroup is parked."""
        return self.sync_reply is not None

    @property
    def needs_no_heartbeat(self) -> bool:
        """It waits for the group, so the group may not wait for it."""
        return not self.is_new and (self.awaits_join or self.awaits_sync)

    def metadata(self, protocol: str | None) -> bytes:
        """What it said with that protocol.

        Raises:
            KeyError: It doesn't speak it.
        """
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise KeyError(protocol)

    def vote(self, candidates: Container[str]) -> str:
        """The first of its protocols that all members speak.

        Raises:
            KeyError: There is none.
        """
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise KeyError(self.member_id)

    def answer_join(self, response: JoinGroupResponse) -> None:
        """Answer its JoinGroup if one is parked."""
        reply, self.join_reply = self.join_reply, None
        if reply is not None:
            reply(response)

    def answer_sync(self, response: SyncGroupResponse) -> bool:
        """Answer its SyncGroup; False if none is parked."""
        reply, self.sync_reply = self.sync_reply, None
        if reply is None:
            return False
        reply(response)
        return True
