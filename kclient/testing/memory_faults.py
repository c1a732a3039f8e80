"""What goes wrong on a ``MemoryNet`` on purpose, by address; ``MemoryNet`` is one of these.

An address is ``"host:port"``, a host for all its ports, or None for everything. It keeps rules and
answers questions about them; links ask.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kclient.errors import InvalidArgument
from kclient.testing.memory_link import Direction, Link, Signal

if TYPE_CHECKING:
    from collections.abc import Sequence

logger = logging.getLogger("kclient.testing")

_BOTH: tuple[Direction, Direction] = ("to_client", "to_server")
RETRY = 1.0
"""Seconds after which something that got no answer is tried again."""
_TRICKLE_STEP = 0.05
"""Seconds between two pieces of a trickle, about."""


class _Armed:
    """A cut that waits for its byte."""

    __slots__ = ("address", "byte", "direction", "times")

    def __init__(self, address: str | None, byte: int, direction: Direction, times: int) -> None:
        self.address = address
        self.byte = byte
        self.direction = direction
        self.times = times


class NetFaults:
    """The rules of a network. Each method takes effect at once, on open connections too."""

    def __init__(self) -> None:
        self._names: dict[str, tuple[str, ...] | OSError | None] = {}
        self._refused: dict[str | None, bool] = {}
        self._blackholed: dict[str | None, bool] = {}
        self._frozen: dict[str | None, frozenset[Direction]] = {}
        self._trickles: dict[str | None, float] = {}
        self._armed: list[_Armed] = []

    @property
    def links(self) -> list[Link]:
        """Connections that are open."""
        raise NotImplementedError

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
        self._refused[self._checked(address)] = True

    def accept(self, address: str | None = None) -> None:
        """Refuse new connections no more."""
        self._refused.pop(self._checked(address), None)

    def blackhole(self, address: str | None = None) -> None:
        """Let all vanish, both ways: bytes, closes, attempts to connect. Nobody is told.

        A connection of which bytes vanished is reset when it is used after ``heal``.
        """
        self._blackholed[self._checked(address)] = True

    def freeze(self, address: str | None = None, direction: Direction | None = None) -> None:
        """Hold all back in one direction or both, in order, until ``heal``.

        It is like a listener's process that was stopped: new connections open, and are silent.
        """
        address = self._checked(address)
        held = _BOTH if direction is None else (_checked_direction(direction),)
        self._frozen[address] = self._frozen.get(address, frozenset()) | frozenset(held)

    def trickle(self, address: str | None = None, *, bytes_per_second: float) -> None:
        """Let what is written from now on arrive slowly, both ways, until ``heal``."""
        if not is_number(bytes_per_second) or not 0 < bytes_per_second < math.inf:
            raise InvalidArgument(f"bytes_per_second={bytes_per_second!r} must be above 0")
        self._trickles[self._checked(address)] = bytes_per_second

    def cut(self, address: str | None = None) -> int:
        """Reset the connections that are open now; returns how many."""
        address = self._checked(address)
        found = [link for link in self.links if _concerns((address,), link.address)]
        for link in found:
            link.cut()
        self._count_cuts(len(found))
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
        for name, value, least in (("byte", byte, 0), ("times", times, 1)):
            if type(value) is not int or value < least:
                raise InvalidArgument(f"{name}={value!r} must be an int of at least {least}")
        armed = _Armed(self._checked(address), byte, _checked_direction(direction), times)
        self._armed.append(armed)

    def heal(self, address: str | None = None) -> int:
        """Take rules back: all of them, those of a host with its ports, or those of one address.

        A rule for everything is taken back only by ``heal()``. Names, ``latency``, ``split`` and
        ``cut_probability`` stay as they are.

        Returns:
            How many rules were taken back.
        """
        address = self._checked(address)

        def ends(rule: str | None) -> bool:
            return address is None or rule == address or (rule or "").startswith(f"{address}:")

        count = 0
        rules: tuple[dict[str | None, Any], ...]
        rules = (self._refused, self._blackholed, self._frozen, self._trickles)
        for ruled in rules:
            over = [rule for rule in ruled if ends(rule)]
            count += len(over)
            for rule in over:
                ruled.pop(rule)
        armed = [one for one in self._armed if not ends(one.address)]
        count += len(self._armed) - len(armed)
        self._armed = armed
        for link in self.links:
            link.to_server.heal()
            link.to_client.heal()
        return count

    def _checked(self, address: str | None) -> str | None:
        """An address that a rule may have; says so where nothing ever listened there."""
        if address is None:
            return None
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
        return address

    def has_listened(self, host: str, port: str) -> bool:
        """Something listens at that host, or has done so; at any port where none is given."""
        raise NotImplementedError

    # What links ask

    def is_refused(self, address: str) -> bool:
        """New connections there are refused."""
        return _concerns(self._refused, address)

    def is_blackholed(self, address: str) -> bool:
        """What is sent there or comes from there vanishes."""
        return bool(self._blackholed) and _concerns(self._blackholed, address)

    def is_frozen(self, address: str, direction: Direction) -> bool:
        """What goes there or comes from there is held back."""
        return any(
            direction in held and _concerns((rule,), address) for rule, held in self._frozen.items()
        )

    def trickle_step(self, address: str) -> int | None:
        """Bytes of one piece of a trickle; None where there is none."""
        rate = self._rate(address)
        return None if rate is None else max(1, int(rate * _TRICKLE_STEP))

    def trickle_seconds(self, address: str, item: bytes | Signal) -> float:
        """How long after the piece before it a piece arrives at least."""
        if not self._trickles or not isinstance(item, bytes):
            return 0.0
        rate = self._rate(address)
        return 0.0 if rate is None else len(item) / rate

    def armed_cut(self, address: str, direction: Direction, passed: int, size: int) -> int | None:
        """After how many of the next bytes a connection is reset; None if it isn't."""
        for armed in self._armed:
            if (
                armed.direction == direction
                and passed <= armed.byte < passed + size
                and _concerns((armed.address,), address)
            ):
                armed.times -= 1
                if not armed.times:
                    self._armed.remove(armed)
                return armed.byte - passed
        return None

    def _rate(self, address: str) -> float | None:
        found = (rate for rule, rate in self._trickles.items() if _concerns((rule,), address))
        return min(found, default=None)

    def _count_cuts(self, count: int) -> None:
        raise NotImplementedError


def _concerns(rules: Iterable[str | None], address: str) -> bool:
    host = address.rpartition(":")[0]
    return any(rule is None or rule in (address, host) for rule in rules)


def is_number(value: object) -> bool:
    """An int or a float that is one."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _checked_direction(direction: Direction) -> Direction:
    if direction not in _BOTH:
        raise InvalidArgument(f"direction={direction!r} can't be: allowed are {_BOTH}")
    return direction


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not name or ":" in name:
        raise InvalidArgument(f"name={name!r} can't be: allowed is a host without a port")
    return name
