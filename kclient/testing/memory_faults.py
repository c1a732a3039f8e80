"""What goes wrong on a ``MemoryNet`` on purpose, by address; ``MemoryNet`` is one of these.

An address is ``"host:port"``, a host for all its ports, or None for everything. Rules are faults in
a ``FaultList``; links ask, and do what they say.
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
"""A ``host``, or a host and an ``address`` with its port; of a rule for everything nothing."""

_BOTH: tuple[Direction, Direction] = ("to_client", "to_server")
RETRY = 1.0
"""Seconds after which something that got no answer is tried again."""
_TRICKLE_STEP = 0.05
"""Seconds between two pieces of a trickle, about."""


class NetFaults:
    """The rules of a network. Each method takes effect at once, on open connections too."""

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
        """Let a name stand for other hosts, which are tried in turn; none makes it empty.

        An attempt begins with the host after that of the one before, if that one gave no usable
        connection, else with the first. Names and hosts are without a port.
        """
        for host in hosts:
            _checked_name(host)
        self._names[_checked_name(name)] = hosts

    def fail_name(self, name: str) -> None:
        """Let the look-up of a name fail."""
        self._names[_checked_name(name)] = OSError(-2, "Name or service not known")

    def hang_name(self, name: str) -> None:
        """Let the look-up of a name get no answer, until another rule for it is made."""
        self._names[_checked_name(name)] = None

    def forget_name(self, name: str) -> None:
        """Let a name stand for itself again."""
        self._names.pop(name, None)

    async def resolve(self, name: str) -> Sequence[str]:
        """The hosts that a name stands for; raises OSError, and waits while the name hangs.

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
        """Refuse new connections no more."""
        for rule in self._rules_at(Action.REFUSE, self._place(address)):
            rule.remove()

    def blackhole(self, address: str | None = None) -> None:
        """Let all vanish, both ways: bytes, closes, attempts to connect. Nobody is told.

        A connection of which bytes vanished is reset when it is used after ``heal``.
        """
        self._rule(Action.BLACKHOLE, self._place(address))

    def freeze(self, address: str | None = None, direction: Direction | None = None) -> None:
        """Hold all back in one direction or both, in order, until ``heal``.

        It is like a listener's process that was stopped: new connections open, and are silent.
        """
        place = self._place(address)
        if direction is not None:
            _check_direction(direction)
        held = {rule.where.get("direction") for rule in self._rules_at(Action.FREEZE, place)}
        self._rule(Action.FREEZE, place, direction if held <= {direction} else None)

    def trickle(self, address: str | None = None, *, bytes_per_second: float) -> None:
        """Let what is written from now on arrive slowly, both ways, until ``heal``."""
        if not is_number(bytes_per_second) or not 0 < bytes_per_second < math.inf:
            raise InvalidArgument(f"bytes_per_second={bytes_per_second!r} must be above 0")
        self._rule(Action.TRICKLE, self._place(address)).rate = bytes_per_second

    def cut(self, address: str | None = None) -> int:
        """Reset the connections that are open now; returns how many."""
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
        """Reset a connection when that many bytes have passed on it in one direction.

        Args:
            address: Which connections.
            byte: How many bytes of that direction arrive, counted from the connection's opening;
                one on which more have passed already is left alone.
            direction: Which bytes count: "to_client" or "to_server".
            times: How many connections it will reset.
        """
        whole("byte", byte, 0)
        whole("times", times, 1)
        where = {**self._place(address), "direction": _check_direction(direction)}
        self._rules.add(Fault(Action.CUT, Stage.NETWORK, None, times, where, byte=byte))

    def heal(self, address: str | None = None) -> int:
        """Take rules back: all of them, those of a host with its ports, or those of one address.

        A rule for everything is taken back only by ``heal()``. Names, ``latency``, ``split`` and
        ``cut_probability`` stay as they are.

        Returns:
            How many rules were taken back.
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
        """Make a rule, in place of the one at the same place."""
        for rule in self._rules_at(action, place):
            rule.remove()
        where = place if direction is None else {**place, "direction": direction}
        return self._rules.add(Fault(action, Stage.NETWORK, None, None, where))

    def _rules_at(self, action: Action, place: Place) -> list[Fault]:
        """The rules of a kind at that very place, in whatever direction."""
        both = {**place, "direction": None}
        found = [one for one in self._rules if one.action is action]
        return [one for one in found if {**one.where, "direction": None} == both]

    def _place(self, address: str | None) -> Place:
        """Where a rule is to hold; says so where nothing ever listened there."""
        if address is None:
            return {}
        host, colon, port = address.partition(":") if isinstance(address, str) else ("", "", "")
        if host.startswith("["):  # of IPv6
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
        """Something listens at that host, or has done so; at any port where none is given."""
        return not self._listened or (host, port) in self._listened

    # What links ask

    def is_refused(self, address: str) -> bool:
        """New connections there are refused."""
        return any(self._acting(Action.REFUSE, address))

    def is_blackholed(self, address: str) -> bool:
        """What is sent there or comes from there vanishes."""
        return any(self._acting(Action.BLACKHOLE, address))

    def is_frozen(self, address: str, direction: Direction) -> bool:
        """What goes there or comes from there is held back."""
        return any(self._acting(Action.FREEZE, address, direction))

    def trickle_step(self, address: str) -> int | None:
        """Bytes of one piece of a trickle; None where there is none."""
        rate = self._rate(address)
        return None if rate is None else max(1, int(rate * _TRICKLE_STEP))

    def trickle_seconds(self, address: str, item: bytes | Signal) -> float:
        """How long after the piece before it a piece arrives at least."""
        rate = self._rate(address)
        return len(item) / rate if rate is not None and isinstance(item, bytes) else 0.0

    def armed_cut(self, address: str, direction: Direction, passed: int, size: int) -> int | None:
        """After how many of the next bytes a connection is reset; None if it isn't."""
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
