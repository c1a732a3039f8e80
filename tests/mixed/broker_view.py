"""A group as its coordinator describes it: its state, and the assignments of its members.

``scenario`` polls it. It uses a connection of its own and decodes assignments by hand, so that the
clients under test don't vouch for themselves.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from kclient.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kclient.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tests.support.raw_connection import RawConnection, ask_once

_TIMEOUT = 2.0
_FIND_VERSION, _DESCRIBE_VERSION = 2, 4


@dataclass(frozen=True, slots=True)
class Seen:
    """A group at one moment.

    Attributes:
        owners: Client id -> its partitions.
    """

    state: str
    owners: Mapping[str, frozenset[int]]


class GroupView:
    """Looks at one group; all of it blocks.

    Args:
        bootstrap: Addresses of brokers.
        topic: The one topic of the group.
    """

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._bootstrap = [_address(one) for one in bootstrap.split(",")]
        self._group = group
        self._topic = topic
        self._connection: RawConnection | None = None
        self._at: tuple[str, int] | None = None

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def coordinator(self) -> tuple[str, int] | None:
        """The last address of the coordinator; None where no broker knew it."""
        if self._connection is None and self.look() is None:
            return None
        return self._at

    def look(self) -> Seen | None:
        """The group now; None where no broker can describe it."""
        try:
            if self._connection is None:
                self._connection = self._find()
            asked = DescribeGroupsRequest([self._group])
            (found,) = self._connection.ask(asked, _DESCRIBE_VERSION, DescribeGroupsResponse).groups
        except OSError:
            self.close()
            return None
        if found.error_code:
            self.close()
            return None
        owners = {
            one.client_id: _partitions(one.member_assignment, self._topic) for one in found.members
        }
        return Seen(found.group_state, owners)

    def _find(self) -> RawConnection:
        request = FindCoordinatorRequest(key=self._group)
        for address in self._bootstrap:
            try:
                found = ask_once(address, request, _FIND_VERSION, FindCoordinatorResponse, _TIMEOUT)
            except OSError:
                continue
            if not found.error_code:
                self._at = (found.host, found.port)
                return RawConnection(self._at, _TIMEOUT)
        raise ConnectionError(f"nobody knows the coordinator of {self._group}")


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def _partitions(assignment: bytes, topic: str) -> frozenset[int]:
    """The partitions of a topic in an assignment of the consumer protocol."""
    if not assignment:
        return frozenset()
    (count,) = struct.unpack_from(">i", assignment, 2)
    at, found = 6, set[int]()
    for _ in range(count):
        (length,) = struct.unpack_from(">h", assignment, at)
        name = assignment[at + 2 : at + 2 + length].decode()
        at += 2 + length
        (parts,) = struct.unpack_from(">i", assignment, at)
        if name == topic:
            found |= set(struct.unpack_from(f">{parts}i", assignment, at + 4))
        at += 4 + 4 * parts
    return frozenset(found)
