"""Whole frames of responses, as brokers send them; the client itself only reads them."""

from __future__ import annotations

from kclient.protocol.headers import API_VERSIONS_KEY
from kclient.protocol.message import Response


def encode_response(response: Response, version: int, correlation_id: int) -> bytes:
    """Size, header and message; raises ProtocolError where the message can't be encoded."""
    out = bytearray(correlation_id.to_bytes(4, "big", signed=True))
    flexible = response.FIRST_FLEXIBLE is not None and version >= response.FIRST_FLEXIBLE
    if flexible and response.API_KEY != API_VERSIONS_KEY:
        out.append(0)
    response.encode_into(out, version)
    return len(out).to_bytes(4, "big") + out
