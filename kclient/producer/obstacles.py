"""What stood in the way of a batch that was not delivered, in words for the text of its failure.

Asked by ``settlement`` for batches that expire or are given up. It looks only, and decides nothing.
Sans-IO.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kclient.producer.hot import ProducerBatch


class Obstacles:
    """Names what a batch waits for.

    Attributes:
        trouble_with: Gives the latest failure to reach a node, None if it was reached since.
        no_identity: Why the latest request for a producer id failed; None after one that didn't.
    """

    __slots__ = ("no_identity", "trouble_with")

    def __init__(self) -> None:
        self.trouble_with: Callable[[int], Exception | None] = _unknown
        self.no_identity: Exception | None = None

    def of(self, batch: ProducerBatch) -> tuple[str, Exception | None]:
        """What ``batch`` waited for at the end, and the error behind that, if there is one."""
        if batch.last_error is not None:
            return f"last problem: {batch.last_error}", batch.last_error
        queue, shipment = batch.queue, batch.shipment
        if shipment is not None and shipment.encoded:
            return f"broker {shipment.node_id} has not answered", None
        if queue.leader is None or queue.leader < 0:
            return "the partition has no leader", None
        if shipment is None:
            if batch.compressing:
                return "it is still being compressed", None
            row = queue.outstanding or queue.sealed
            if row and row[0] is not batch:
                what, error = self.of(row[0])
                return f"it waits behind an earlier batch of its partition ({what})", error
            if queue.needs_identity():
                error = self.no_identity
                return "the producer waits for a producer id" + _because(error), error
        node_id = queue.leader if shipment is None else shipment.node_id
        error = self.trouble_with(node_id)
        if error is not None:
            return f"broker {node_id} can't be used{_because(error)}", error
        return f"it waits for its turn at broker {node_id}", None


def _because(error: Exception | None) -> str:
    return "" if error is None else f": {error}"


def _unknown(node_id: int) -> None:
    """Nobody can say how the node is."""
