"""Who a request is for: any broker, a given one, the controller, or the leader of a partition.

Plain values; ``calls`` finds the node behind them anew for each attempt, since it may move. A
coordinator is one more kind of target, to be added here and found there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kclient.frozen import Frozen, frozen


@frozen
class AnyNode(Frozen):
    """The broker that has least to do."""

    def __str__(self) -> str:
        return "any broker"


@dataclass(frozen=True, slots=True)
class NodeTarget:
    """One broker, whatever happens."""

    node_id: int

    def __str__(self) -> str:
        return f"broker {self.node_id}"


@frozen
class ControllerTarget(Frozen):
    """The controller (in KRaft clusters: a broker that forwards to it)."""

    def __str__(self) -> str:
        return "the controller"


@dataclass(frozen=True, slots=True)
class LeaderTarget:
    """The leader of a partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"the leader of {self.topic}-{self.partition}"


Target: TypeAlias = AnyNode | NodeTarget | ControllerTarget | LeaderTarget
