"""Where the brokers of a cluster may listen: hosts that clients can connect to, ports in a row.

Called by ``Cluster`` before it opens any listener. Whether a port is free shows only at the start:
the operating system's error then gets a note on the broker's state and on what to do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kclient.errors import InvalidArgument

MAX_PORT = 65_535
WILDCARDS = frozenset(("", "*", "0.0.0.0", "::", "[::]"))


def check_address(host: str, port: int, brokers: int) -> None:
    """Check that the host is an address and that all ports are valid.

    Raises:
        InvalidArgument: One is not; the text names what is allowed.
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


def address_of(host: str, port: int) -> str:
    """``host:port`` as a bootstrap list takes it: an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@contextlib.contextmanager
def noted(note: str) -> Iterator[None]:
    """Add a note to the OSError of an address that can't be bound."""
    try:
        yield
    except OSError as error:
        error.add_note(note)
        raise


def not_started(node_id: int, at: str) -> str:
    """The note when a broker can't listen and so its cluster doesn't start."""
    return (
        f"broker {node_id} can't listen at {at}, so the cluster isn't started: "
        "port=0 finds free ports, and host= must be of this machine"
    )


def stays_down(node_id: int, wanted: str, address: str) -> str:
    """The note when a broker can't be restarted."""
    return (
        f"broker {node_id} can't listen at {wanted}; it is down, and its address is still "
        f"{address}: restart({node_id}) brings it back there, move({node_id}) elsewhere"
    )
