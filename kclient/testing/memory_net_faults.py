"""Faults of a ``MemoryNet``, by address; ``NetFaults`` is the base class of ``MemoryNet``.

An address is ``"host:port"``, a host for all its ports, or None for everything. Rules are faults in
a ``FaultList``; links query and apply them.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from kclient.errors import InvalidArgument
from kclient.testing.arguments import is_number, whole
from kclient.testing.fault import Action, Fault, Stage
from kclient.testing.fault_list import FaultList
from kclient.testing.memory_link import Direction, Link, Signal

if TYPE_CHECKING:
    from collections.abc import Sequence

logger = logging.getLogger("kclient.testing")

Place: TypeAlias = dict[str, str]
"""A ``host``, or a host and an ``address`` with its port; empty for a rule for everything."""

_BOTH: tuple[Direction, Direction] = ("to_client", "to_server")
RETRY = 1.0
"""Seconds after which an attempt that got no response is repeated."""
_TRICKLE_STEP = 0.05
"""Approximate seconds between two pieces of a trickle."""


class NetFaults:
    """The rules of a network. Each method takes effect at once, also on open connections."""

    def __init__(self) -> None:
        self._names: dict[str, tuple[str, ...] | OSError | None] = {}
        self._rules = FaultList()
        self._listened: set[tuple[str, str]] = set()
        self._links: dict[int, Link] = {}

    @property
    def links(self) -> list[Link]:
        """Connections that are open, in the order of opening."""
        return list(self._links.values())

    # Names

    def set_name(self, name: str, *hosts: str) -> None:
        """Make a name resolve to other hosts, which are tried in order; none makes it empty.

        An attempt begins with the host after that of the previous one, if that gave no usable
        connection, else with the first. Names and hosts are without a port.
        """
        for host in hosts:
            _checked_name(host)
        self._names[_checked_name(name)] = hosts

    def fail_name(self, name: str) -> None:
        """Make the lookup of a name fail."""
        self._names[_checked_name(name)] = OSError(-2, "Name or service not known")

    def hang_name(self, name: str) -> None:
        """Make the lookup of a name hang, until another rule for the name is made."""
        self._names[_checked_name(name)] = None

    def forget_name(self, name: str) -> None:
        """Make a name resolve to itself again."""
        self._names.pop(name, None)

    async def resolve(self, name: str) -> Sequence[str]:
        """The hosts that a name resolves to; raises OSError, and waits while the name hangs.

        Cancellation: leaves nothing behind.
        """
        while (found := self._names.get(name, (name,))) is None:  # noqa: ASYNC110
            await asyncio.sleep(RETRY)
        if isinstance(found, OSError):
            raise OSError(*found.args)
        return found or ()

    # Rules

    def refuse(self, address: str | None = None) -> None:
        """Refuse new connections."""
        self._rule(Action.REFUSE, self._place(address))

    def accept(self, address: str | None = None) -> None:
        """Accept new connections again."""
        for rule in self._rules_at(Action.REFUSE, self._place(address)):
            rule.remove()

    def blackhole(self, address: str | None = None) -> None:
        """Drop everything silently, both ways: bytes, closes, attempts to connect.

        A connection that lost bytes is reset when it is used after ``heal``.
        """
        self._rule(Action.BLACKHOLE, self._place(address))

    def freeze(self, address: str | None = None, direction: Direction | None = None) -> None:
        """Hold back everything in one direction or both, in order, until ``heal``.

        It acts like a listener whose process is suspended: new connections open, and are silent.
        """
        place = self._place(address)
        if direction is not None:
            _check_direction(direction)
        held = {rule.where.get("direction") for rule in self._rules_at(Action.FREEZE, place)}
        self._rule(Action.FREEZE, place, direction if held <= {direction} else None)

    def trickle(self, address: str | None = None, *, bytes_per_second: float) -> None:
        """Make bytes written from now on arrive slowly, both ways, until ``heal``."""
        if not is_number(bytes_per_second) or not 0 < bytes_per_second < math.inf:
            raise InvalidArgument(f"bytes_per_second={bytes_per_second!r} must be above 0")
        self._rule(Action.TRICKLE, self._place(address)).rate = bytes_per_second

    def cut(self, address: str | None = None) -> int:
        """Reset the connections that are open now; return their number."""
        place = self._place(address)
        found = [link for link in self.links if place.items() <= _facts(link.address).items()]
        for link in found:
            link.cut()
        return len(found)

    def cut_at(
        self,
        address: str | None = None,
        *,
        byte: int,
        direction: Direction = "to_client",
        times: int = 1,
    ) -> None:
        """Reset a connection when that many bytes have been delivered in one direction.

        Args:
            address: Address of the connections.
            byte: How many bytes of that direction arrive, counted from the connection's opening;
                one that has delivered more already is left alone.
            direction: Which bytes count: "to_client" or "to_server".
            times: How many connections it will reset.
        """
        whole("byte", byte, 0)
        whole("times", times, 1)
        where = {**self._place(address), "direction": _check_direction(direction)}
        self._rules.add(Fault(Action.CUT, Stage.NETWORK, None, times, where, byte=byte))

    def heal(self, address: str | None = None) -> int:
        """Remove rules: all of them, those of a host with its ports, or those of one address.

        A rule for everything is removed only by ``heal()``. Names, ``latency``, ``split`` and
        ``cut_probability`` stay as they are.

        Returns:
            How many rules were removed.
        """
        place = self._place(address)
        over = [rule for rule in self._rules if place.items() <= rule.where.items()]
        for rule in over:
            rule.remove()
        for link in self.links:
            link.to_server.heal()
            link.to_client.heal()
        return len(over)

    def _rule(self, action: Action, place: Place, direction: Direction | None = None) -> Fault:
        """Make a rule; it replaces one of the same kind for the same place."""
        for rule in self._rules_at(action, place):
            rule.remove()
        where = place if direction is None else {**place, "direction": direction}
        return self._rules.add(Fault(action, Stage.NETWORK, None, None, where))

    def _rules_at(self, action: Action, place: Place) -> list[Fault]:
        """The rules of a kind for exactly that place, in any direction."""
        both = {**place, "direction": None}
        found = [one for one in self._rules if one.action is action]
        return [one for one in found if {**one.where, "direction": None} == both]

    def _place(self, address: str | None) -> Place:
        """The place of a rule; logs a warning if nothing ever listened there."""
        if address is None:
            return {}
        host, colon, port = address.partition(":") if isinstance(address, str) else ("", "", "")
        if host.startswith("["):  # IPv6
            host, _, rest = address[1:].partition("]")
            colon, port = rest[:1], rest[1:]
        if not host or (colon and not port.isdecimal()):
            raise InvalidArgument(
                f"address={address!r} can't be: allowed are 'host', 'host:port', or None for all"
            )
        if not self.has_listened(host, port):
            logger.warning("nothing has ever listened at %s: is the address right?", address)
        return _facts(address) if port else {"host": address}

    def has_listened(self, host: str, port: str) -> bool:
        """Whether something listens at that host or did so before; at any port if none is given."""
        return not self._listened or (host, port) in self._listened

    # Called by links

    def is_refused(self, address: str) -> bool:
        """Whether new connections there are refused."""
        return any(self._acting(Action.REFUSE, address))

    def is_blackholed(self, address: str) -> bool:
        """Whether bytes to and from there are dropped."""
        return any(self._acting(Action.BLACKHOLE, address))

    def is_frozen(self, address: str, direction: Direction) -> bool:
        """Whether bytes there in that direction are held back."""
        return any(self._acting(Action.FREEZE, address, direction))

    def trickle_step(self, address: str) -> int | None:
        """Size of one piece of a trickle in bytes; None if there is none."""
        rate = self._rate(address)
        return None if rate is None else max(1, int(rate * _TRICKLE_STEP))

    def trickle_seconds(self, address: str, item: bytes | Signal) -> float:
        """Minimum seconds between the arrival of the previous piece and of this one."""
        rate = self._rate(address)
        return len(item) / rate if rate is not None and isinstance(item, bytes) else 0.0

    def armed_cut(self, address: str, direction: Direction, passed: int, size: int) -> int | None:
        """The number of the next ``size`` bytes before a reset; None if there is no reset."""
        for rule in self._acting(Action.CUT, address, direction):
            if passed <= rule.byte < passed + size:
                rule.use()
                if not rule.active:
                    rule.remove()
                return rule.byte - passed
        return None

    def _rate(self, address: str) -> float | None:
        return min((rule.rate for rule in self._acting(Action.TRICKLE, address)), default=None)

    def _acting(
        self, action: Action, address: str, direction: Direction | None = None
    ) -> Iterator[Fault]:
        if self._rules.listed:
            facts = {**_facts(address), "direction": direction}
            for rule in self._rules.acting(Stage.NETWORK, None, facts):
                if rule.action is action:
                    yield rule


def _facts(address: str) -> Place:
    return {"host": address.rpartition(":")[0], "address": address}


def _check_direction(direction: Direction) -> Direction:
    if direction not in _BOTH:
        raise InvalidArgument(f"direction={direction!r} can't be: allowed are {_BOTH}")
    return direction


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not name or ":" in name:
        raise InvalidArgument(f"name={name!r} can't be: allowed is a host without a port")
    return name
