"""Where the brokers of a cluster may listen: hosts that clients can be told, ports in a row.

Called by ``Cluster`` before anything is opened. Whether a port is free shows only at the start.
"""

from __future__ import annotations

from kclient.errors import InvalidArgument

MAX_PORT = 65_535
WILDCARDS = frozenset(("", "*", "0.0.0.0", "::", "[::]"))


def check_address(host: str, port: int, brokers: int) -> None:
    """Refuse a host that is no address, and ports that can't be.

    Raises:
        InvalidArgument: The text says what is allowed.
    """
    if not isinstance(host, str) or host in WILDCARDS:
        raise InvalidArgument(
            f"host={host!r} must be an address that clients connect to, as they are told it"
        )
    most = MAX_PORT + 1 - brokers
    if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= most:
        raise InvalidArgument(
            f"port={port!r} must be 0 (any that is free) or 1 to {most}: "
            f"the {brokers} brokers have ports in a row"
        )
