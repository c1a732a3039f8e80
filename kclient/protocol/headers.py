"""Frames: the size, the header and the message, in both directions.

Clients use ``encode_request`` and ``decode_response_header``, the embedded broker reads requests
with ``decode_request_header``. A request's header is version 2 for flexible versions of the API and
1 for the others; a response's is 1 and 0, but always 0 for ApiVersions, as its sender may not know
which versions the peer supports (KIP-511).
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

from kclient.errors import ProtocolError
from kclient.protocol import api_versions
from kclient.protocol.message import PiecewiseRequest, Request
from kclient.protocol.primitives import DECODE_ERRORS, Buffer, put_string, read_unknown_tags

API_VERSIONS_KEY = 18

_SIZE = struct.Struct(">i")
_REQUEST_START = struct.Struct(">ihhi")
_REQUEST_HEADER = struct.Struct(">hhih")
_CORRELATION = struct.Struct(">i")


class RequestHeader(NamedTuple):
    """The header of a request.

    Attributes:
        api_key: The API, which may be unsupported.
        api_version: Version of the request, which may be unsupported.
        correlation_id: To be repeated in the response's header.
        client_id: The client's name for itself, None without one.
        body_offset: Position of the message in the frame.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def encode_request(
    request: Request, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Encode a whole frame: size, header, message.

    Raises:
        ProtocolError: The message can't be encoded in ``version``, or ``client_id`` is too long.
    """
    flexible = request.FIRST_FLEXIBLE is not None and version >= request.FIRST_FLEXIBLE
    sender = _sender(client_id, flexible)
    if isinstance(request, PiecewiseRequest):
        pieces = request.pieces(version)
        size = _REQUEST_START.size - _SIZE.size + len(sender) + sum(map(len, pieces))
        start = _REQUEST_START.pack(size, request.API_KEY, version, correlation_id)
        return b"".join((start, sender, *pieces))
    out = bytearray(_REQUEST_START.pack(0, request.API_KEY, version, correlation_id))
    out += sender
    request.encode_into(out, version)
    _SIZE.pack_into(out, 0, len(out) - 4)
    return bytes(out)


@lru_cache(maxsize=64)
def _sender(client_id: str | None, flexible: bool) -> bytes:
    """Return the part of a request's header after the correlation id."""
    out = bytearray()
    if client_id is None:
        out += b"\xff\xff"
    else:
        try:
            put_string(out, client_id)
        except (OverflowError, UnicodeEncodeError, AttributeError) as problem:
            raise ProtocolError(
                f"client_id can't be sent: {problem}", struct="RequestHeader", field="client_id"
            ) from problem
    if flexible:
        out.append(0)
    return bytes(out)


def decode_request_header(frame: Buffer) -> RequestHeader:
    """Read the header of a request from a frame without its size.

    The headers of unsupported APIs and versions are read as far as possible, so that the broker can
    send an error response.

    Raises:
        ProtocolError: The bytes are no header.
    """
    end = len(frame)
    try:
        key, version, correlation_id, size = _REQUEST_HEADER.unpack_from(frame, 0)
        pos = _REQUEST_HEADER.size
        client_id = None
        if size < -1 or pos + size > end:
            raise _header_fault("RequestHeader", "client_id", 8)
        if size >= 0:
            client_id = str(frame[pos : pos + size], "utf-8")
            pos += size
        if key in api_versions.BY_KEY and api_versions.is_flexible(key, version):
            _, pos = read_unknown_tags(frame, pos, end)
    except DECODE_ERRORS:
        raise _header_fault("RequestHeader", None, 0) from None
    return RequestHeader(key, version, correlation_id, client_id, pos)


def decode_response_header(frame: Buffer, api_key: int, version: int) -> tuple[int, int]:
    """Return the correlation id and the position of the message in a frame without its size.

    Raises:
        ProtocolError: The bytes are no header.
    """
    try:
        (correlation_id,) = _CORRELATION.unpack_from(frame, 0)
        pos = _CORRELATION.size
        if api_key != API_VERSIONS_KEY and api_versions.is_flexible(api_key, version):
            if frame[pos]:
                _, pos = read_unknown_tags(frame, pos, len(frame))
            else:
                pos += 1
    except DECODE_ERRORS:
        raise _header_fault("ResponseHeader", None, 0) from None
    return correlation_id, pos


def _header_fault(struct_name: str, field: str | None, offset: int) -> ProtocolError:
    return ProtocolError(
        f"these bytes are no {struct_name}", struct=struct_name, field=field, offset=offset
    )
