"""Who reaches whom inside the cluster: brokers among each other, and the registry.

Messages between controller, brokers and registry go through ``send``: they arrive at once, or after
a delay, or not at all where two nodes were parted. Followers ask ``reachable`` before they dial.
Used by ``Cluster`` and its brokers; it doesn't know what is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

REGISTRY = 0
"""Stands for the registry among the node ids, which begin at 1."""


class Interior:
    """Ways between nodes.

    Attributes:
        delay: Called with both ends, gives the seconds that a message travels; None for none.
        later: Runs a function after so many seconds; needed where ``delay`` is set.
    """

    def __init__(self) -> None:
        self._parted: set[frozenset[int]] = set()
        self._listeners: list[Callable[[], None]] = []
        self.delay: Callable[[int, int], float] | None = None
        self.later: Callable[[float, Callable[[], None]], object] | None = None

    def reachable(self, one: int, other: int) -> bool:
        """Whether word gets from one to the other."""
        return not self._parted or frozenset((one, other)) not in self._parted

    @property
    def parted(self) -> list[tuple[int, int]]:
        """The pairs that can't reach one another."""
        return sorted((min(pair), max(pair)) for pair in self._parted)

    def part(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Cut these ways."""
        self._change(self._parted | {frozenset(pair) for pair in pairs})

    def join(self, pairs: Iterable[tuple[int, int]] | None = None) -> None:
        """Mend these ways, or all."""
        mended = None if pairs is None else {frozenset(pair) for pair in pairs}
        self._change(set() if mended is None else self._parted - mended)

    def _change(self, parted: set[frozenset[int]]) -> None:
        if parted != self._parted:
            self._parted = parted
            for listener in tuple(self._listeners):
                listener()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever a way is cut or mended."""
        self._listeners.append(listener)

    def send(self, sender: int, receiver: int, deliver: Callable[[], None]) -> None:
        """Let ``deliver`` run at the receiver, unless the two are parted when it would arrive."""
        if sender == receiver:
            deliver()
        elif self.reachable(sender, receiver):
            seconds = 0.0 if self.delay is None else self.delay(sender, receiver)
            if seconds <= 0 or self.later is None:
                deliver()
            else:
                self.later(seconds, lambda: self._arrive(sender, receiver, deliver))

    def _arrive(self, sender: int, receiver: int, deliver: Callable[[], None]) -> None:
        if self.reachable(sender, receiver):
            deliver()
