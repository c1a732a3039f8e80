"""Reachability inside the cluster, between brokers and from them to the registry.

Messages between controller, brokers and registry go through ``send``: they arrive at once, or after
a delay, or not at all if the nodes are disconnected. Followers check ``reachable`` before they
dial. Used by ``Cluster`` and its brokers; it doesn't know the contents of messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

REGISTRY = 0
"""Node id that stands for the registry; those of brokers begin at 1."""


class Interior:
    """Links between nodes.

    Attributes:
        delay: Called with both ends, returns the latency in seconds; None for no latency.
        later: Runs a function after so many seconds; needed if ``delay`` is set.
    """

    def __init__(self) -> None:
        self._parted: set[frozenset[int]] = set()
        self._listeners: list[Callable[[], None]] = []
        self.delay: Callable[[int, int], float] | None = None
        self.later: Callable[[float, Callable[[], None]], object] | None = None

    def reachable(self, one: int, other: int) -> bool:
        """Whether messages get from one to the other."""
        return not self._parted or frozenset((one, other)) not in self._parted

    @property
    def parted(self) -> list[tuple[int, int]]:
        """The disconnected pairs."""
        return sorted((min(pair), max(pair)) for pair in self._parted)

    def part(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Disconnect these pairs."""
        self._change(self._parted | {frozenset(pair) for pair in pairs})

    def join(self, pairs: Iterable[tuple[int, int]] | None = None) -> None:
        """Connect these pairs again, or all."""
        mended = None if pairs is None else {frozenset(pair) for pair in pairs}
        self._change(set() if mended is None else self._parted - mended)

    def _change(self, parted: set[frozenset[int]]) -> None:
        if parted != self._parted:
            self._parted = parted
            for listener in tuple(self._listeners):
                listener()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever pairs are disconnected or connected."""
        self._listeners.append(listener)

    def send(self, sender: int, receiver: int, deliver: Callable[[], None]) -> None:
        """Call ``deliver`` at the receiver, unless the two are disconnected on its arrival."""
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
