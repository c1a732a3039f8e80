"""The end of a prepared transaction, by another process than the one that wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.cluster.coordinator import Coordinator, CoordinatorKey, coordinator_error
from kclient.protocol.messages.end_txn import EndTxnRequest

if TYPE_CHECKING:
    from kclient.cluster.core import ClientCore
    from kclient.errors import KafkaError
    from kclient.protocol.messages.end_txn import EndTxnResponse
    from kclient.types import PreparedTransaction

_LAST_WITHOUT_BUMP = 4
"""EndTxn: from v5 on the coordinator raises the epoch, as protocol V2 has it."""


async def end_transaction(
    core: ClientCore, prepared: PreparedTransaction, timeout: float, *, commit: bool
) -> None:
    """Send EndTxn to the coordinator until there is a response."""
    if prepared.is_empty:
        return
    name = prepared.transactional_id
    what = f"EndTxn of transactional id {name}"

    def check(response: EndTxnResponse, node_id: int) -> KafkaError | None:
        code = response.error_code
        return coordinator_error(code, f"{what} failed", node_id=node_id) if code else None

    await Coordinator(core, name, CoordinatorKey.TRANSACTION).call(
        EndTxnRequest(name, prepared.producer_id, prepared.epoch, commit),
        api=EndTxnRequest,
        check=check,
        may_repeat=lambda asked, error: asked == EndTxnRequest.NAME and error.retriable,
        retry_state=core.calls.retry_state(what, timeout),
        max_version=None if prepared.protocol > 1 else _LAST_WITHOUT_BUMP,
    )
