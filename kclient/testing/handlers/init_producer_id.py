"""InitProducerId (22): an id for an idempotent producer (KIP-98)."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from kclient.testing.call import Call

NONE = -1
"""No id, or no epoch: a producer that asks for a newer epoch gives both (KIP-360)."""


def handle(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """A new id with epoch 0; transactional ids are refused, as there is no coordinator for them."""
    code = call.error_for()
    if code is None and request.transactional_id is not None:
        empty = not request.transactional_id
        code = ErrorCode.INVALID_REQUEST if empty else ErrorCode.UNSUPPORTED_VERSION
    elif code is None and (request.producer_id == NONE) != (request.producer_epoch == NONE):
        code = ErrorCode.INVALID_REQUEST
    if code is not None:
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=call.broker.new_producer_id(), producer_epoch=0)
