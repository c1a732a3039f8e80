"""Broker: where one node of the cluster listens. A frozen value; sans-IO.

Made by ``metadata`` out of Metadata responses and leader hints; the network's address book is
filled from it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker, as the cluster announces it.

    Attributes:
        node_id: Its id, from 0.
        host: Advertised host name or address, IPv6 without brackets.
        port: Advertised port.
        rack: Its rack or availability zone; None where the cluster has none.
        fenced: Registered, but not allowed to lead anything (KRaft; only ``Admin`` can tell).
    """

    node_id: int
    host: str
    port: int
    rack: str | None = None
    fenced: bool = False

    @property
    def connection_string(self) -> str:
        """``host:port``, with an IPv6 address in brackets: what a bootstrap list takes."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"broker {self.node_id} at {self.connection_string}"
