"""The end of a prepared transaction, by another process than the one that wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.cluster.coordinator import Coordinator, CoordinatorKey
from kclient.cluster.retry import RetryAction
from kclient.error_codes import ErrorCode
from kclient.errors import KafkaError, broker_error
from kclient.protocol.messages.end_txn import EndTxnRequest

if TYPE_CHECKING:
    from kclient.cluster.core import ClientCore
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
    coordinator = Coordinator(core, name, CoordinatorKey.TRANSACTION)
    request = EndTxnRequest(name, prepared.producer_id, prepared.epoch, commit)
    cap = None if prepared.protocol > 1 else _LAST_WITHOUT_BUMP
    what = f"EndTxn of transactional id {name}"
    retry_state = core.calls.retry_state(what, timeout)
    while True:
        version, node_id = core.metadata.view.version, await coordinator.find(retry_state.deadline)
        try:
            response = await coordinator.send(
                node_id,
                request,
                api=EndTxnRequest,
                caller_deadline=retry_state.deadline,
                max_version=cap,
            )
            if not response.error_code:
                return
            code = response.error_code
            if code == ErrorCode.INVALID_PRODUCER_EPOCH:  # the code that old coordinators have
                code = ErrorCode.PRODUCER_FENCED
            error: KafkaError = broker_error(code, f"{what} failed", node_id=node_id)
        except KafkaError as failure:
            error = failure
        coordinator.judge(node_id, error)
        if not error.retriable and not getattr(error, "rediscover_coordinator", False):
            raise retry_state.attempts.explain(error)
        retry_state.attempts.add(core.calls.name_of(node_id), error)
        await retry_state.wait(RetryAction.BACK_OFF, version)
