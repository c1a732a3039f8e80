"""From the bytes of a request to its handler, and from a response to bytes.

Which APIs and versions are served is the handlers' table; what is not served ends the connection,
as in Kafka, but for ApiVersions, which has an answer for versions to come (KIP-511).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from kclient.errors import ProtocolError
from kclient.protocol.headers import API_VERSIONS_KEY, decode_request_header
from kclient.protocol.message import Request, Response
from kclient.protocol.registry import request_class
from kclient.testing.call import Call
from kclient.testing.deferred import Deferred
from kclient.testing.fault import Answer, Unframed
from kclient.testing.handlers import REFUSED, SERVED
from kclient.testing.handlers.api_versions import unsupported_version_response
from kclient.testing.request_log import ServedRequest

if TYPE_CHECKING:
    from kclient.testing.broker import Broker

_REQUEST_START = struct.Struct(">hhi")
_RESPONSE_START = struct.Struct(">ii")
_PAST_THE_END = "(end)"
"""What the decoder names as the field when only bytes after the message are wrong."""
_SIZE = struct.Struct(">i")


class Unserved(Exception):
    """A request that no handler gets.

    Attributes:
        answer: A frame to send; None where the connection is to be closed.
    """

    def __init__(self, why: str, answer: bytearray | None = None) -> None:
        super().__init__(why)
        self.answer = answer


def open_call(broker: Broker, frame: memoryview, connection: int) -> Call:
    """Decode a request and note it in the log.

    Raises:
        Unserved: Another API or version.
        KafkaError: It is malformed.
    """
    if len(frame) < _REQUEST_START.size:
        raise Unserved(f"a frame of {len(frame)} bytes is no request")
    key, version, correlation_id = _REQUEST_START.unpack_from(frame, 0)
    served = SERVED.get(key) or REFUSED.get(key)
    if served is None:
        raise Unserved(f"the embedded cluster does not serve API {key}")
    lowest, highest = broker.versions[key]
    if not lowest <= version <= highest:
        if key == API_VERSIONS_KEY:
            answer = encode_frame(unsupported_version_response(broker.versions), 0, correlation_id)
            raise Unserved(f"ApiVersions v{version}", answer)
        raise Unserved(f"{served.name} v{version} is not served")
    header = decode_request_header(frame)
    request = _decode(request_class(key), frame, version, header.body_offset)
    entry = ServedRequest(
        broker.now(),
        broker.node_id,
        key,
        served.name,
        version,
        correlation_id,
        header.client_id,
        connection,
        len(frame),
        request,
    )
    broker.requests.add(entry)
    return Call(broker, key, version, correlation_id, header.client_id, request, entry)


def _decode(cls: type[Request], frame: memoryview, version: int, offset: int) -> Request:
    """Decode a request; bytes past its end are ignored as in Kafka: librdkafka sends some."""
    try:
        return cls.decode(frame, version, offset)
    except ProtocolError as error:
        if error.field != _PAST_THE_END or error.offset is None:
            raise
        return cls.decode(frame[: error.offset], version, offset)


def serve(call: Call) -> Response | Deferred[Response] | None:
    """Carry out a request.

    Returns:
        The response; a Deferred if it has to wait; None where none is wanted.

    Raises:
        Hangup: The connection must be closed instead.
    """
    served = SERVED.get(call.api_key) or REFUSED[call.api_key]
    return served.handle(call, call.request)


def encode_frame(response: Response, version: int, correlation_id: int) -> bytearray:
    """A whole frame: size, header, message; not copied once more, as it may be large."""
    out = bytearray(_RESPONSE_START.size)
    first = response.FIRST_FLEXIBLE
    if first is not None and version >= first and response.API_KEY != API_VERSIONS_KEY:
        out.append(0)
    response.encode_into(out, version)
    _RESPONSE_START.pack_into(out, 0, len(out) - _SIZE.size, correlation_id)
    return out


def encode_answer(answer: Answer, version: int, correlation_id: int) -> bytearray:
    """A whole frame of a response, or of the bytes that a fault gave in its place."""
    if isinstance(answer, Response):
        return encode_frame(answer, version, correlation_id)
    if isinstance(answer, Unframed):
        return bytearray(answer)
    return bytearray(_SIZE.pack(len(answer)) + answer)
