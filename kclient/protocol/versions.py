"""Which version of an API to speak: the upper end of what both sides know.

A connection makes one ``NodeApiVersions`` from the broker's ApiVersions response and asks it
before each request. Values only: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Self

from kclient.errors import NoCommonVersion

if TYPE_CHECKING:
    from kclient.protocol.message import Request
    from kclient.protocol.messages.api_versions import ApiVersionsResponse

_MOST_APIS = 256
"""So many APIs a broker may serve, about three times as many as there are."""


class VersionRange(NamedTuple):
    """Versions ``min`` to ``max``, both included."""

    min: int
    max: int

    def __str__(self) -> str:
        return str(self.min) if self.min == self.max else f"{self.min} to {self.max}"


@lru_cache(maxsize=16)
def _table_of(keys: tuple[tuple[int, int, int], ...]) -> Mapping[int, VersionRange]:
    """One table for all connections to brokers of the same software: it has about ninety rows."""
    return {key: VersionRange(low, high) for key, low, high in keys}


class NodeApiVersions:
    """What one broker speaks.

    Attributes:
        ranges: API key -> versions.
        node_id: The broker, for error texts; None if not known.
    """

    def __init__(self, ranges: Mapping[int, VersionRange], node_id: int | None = None) -> None:
        self.ranges = ranges
        self.node_id = node_id
        self._usable: dict[tuple[int, int | None], int] = {}

    @classmethod
    def from_response(cls, response: ApiVersionsResponse, node_id: int | None = None) -> Self:
        """From a broker's ApiVersions response of any version."""
        keys = [(key.api_key, key.min_version, key.max_version) for key in response.api_keys]
        # What no broker sends isn't to be kept for the rest of the process.
        table = _table_of if len(keys) <= _MOST_APIS else _table_of.__wrapped__
        return cls(table(tuple(keys)), node_id)

    def latest_usable(self, request: type[Request], cap: int | None = None) -> int:
        """The highest version of ``request`` that both sides speak.

        Args:
            request: The request's class.
            cap: Highest version that the caller can use, for example since a newer one changed
                the meaning of a field; None for no limit of its own.

        Raises:
            NoCommonVersion: There is none; the text has the API, both ranges and the broker.
        """
        wanted = (request.API_KEY, cap)
        known = self._usable.get(wanted)
        if known is not None:
            return known
        ours = VersionRange(
            request.MIN_VERSION,
            request.MAX_VERSION if cap is None else min(cap, request.MAX_VERSION),
        )
        theirs = self.ranges.get(request.API_KEY)
        if theirs is None:
            raise self._no_common(request, ours, "doesn't offer it at all")
        version = min(ours.max, theirs.max)
        if version < max(ours.min, theirs.min):
            raise self._no_common(request, ours, f"offers {theirs}")
        self._usable[wanted] = version
        return version

    def _no_common(self, request: type[Request], ours: VersionRange, offer: str) -> NoCommonVersion:
        node = "the broker" if self.node_id is None else f"broker {self.node_id}"
        needed = str(ours) if ours.min <= ours.max else f"at most {ours.max}"
        return NoCommonVersion(
            f"{request.NAME} (API {request.API_KEY}): this call needs version {needed}, "
            f"{node} {offer}",
            node_id=self.node_id,
            hint="upgrade the broker, or do without this feature",
        )
