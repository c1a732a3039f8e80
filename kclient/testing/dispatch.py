"""From the bytes of a request to its handler, and from a response to bytes.

``HANDLERS`` lists the APIs that are served, ``api_versions.py`` their versions, and a broker may be
set to serve fewer. A request that is not served closes the connection, as in Kafka, except for
ApiVersions, which has an error response for unknown versions (KIP-511).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from kclient.errors import ProtocolError
from kclient.protocol.api_versions import API_NAMES, request_class
from kclient.protocol.headers import API_VERSIONS_KEY, decode_request_header
from kclient.protocol.message import Request, Response
from kclient.testing import api_versions
from kclient.testing.handlers import (
    acls,
    configs,
    fetch,
    group_admin,
    group_membership,
    group_offsets,
    list_offsets,
    logs,
    metadata,
    produce,
    quotas,
    sasl,
    tokens,
    topics,
    transaction_admin,
    transaction_writes,
    transactions,
    users,
)
from kclient.testing.listeners import INNER
from kclient.testing.request_context import RequestContext
from kclient.testing.request_log import ServedRequest
from kclient.testing.responses import PendingResult, encode_frame

if TYPE_CHECKING:
    from kclient.testing.broker import Broker
    from kclient.testing.sasl import SaslSession

_REQUEST_START = struct.Struct(">hhi")
_PAST_THE_END = "(end)"
"""The field that the decoder names if there are bytes after the message."""
_SIZE = struct.Struct(">i")

Handle: TypeAlias = Callable[[RequestContext, Any], "Response | PendingResult[Any] | None"]
HANDLERS: dict[int, Handle] = {
    0: produce.produce,
    1: fetch.handle,
    2: list_offsets.list_offsets,
    3: metadata.metadata,
    8: group_offsets.commit,
    9: group_offsets.fetch,
    10: group_membership.find_coordinator,
    11: group_membership.join_group,
    12: group_membership.heartbeat,
    13: group_membership.leave_group,
    14: group_membership.sync_group,
    15: group_admin.describe_groups,
    16: group_admin.list_groups,
    17: sasl.handshake,
    18: api_versions.handle,
    19: topics.create_topics,
    20: topics.delete_topics,
    21: logs.delete_records,
    22: transactions.init_producer_id,
    23: list_offsets.offset_for_leader_epoch,
    24: transactions.add_partitions,
    25: transactions.add_offsets,
    26: transactions.end_transaction,
    27: transaction_writes.write_markers,
    28: transaction_writes.commit_offsets,
    29: acls.describe,
    30: acls.create,
    31: acls.delete,
    32: configs.describe_configs,
    33: configs.alter_configs_of,
    35: logs.describe_log_dirs,
    36: sasl.authenticate,
    37: topics.create_partitions,
    38: tokens.create_token,
    39: tokens.renew_token,
    40: tokens.expire_token,
    41: tokens.describe_tokens,
    42: group_admin.delete_groups,
    43: topics.elect_leaders,
    44: configs.alter_incrementally,
    47: group_admin.delete_offsets,
    48: quotas.describe_quotas,
    49: quotas.alter_quotas,
    50: users.describe_scram,
    51: users.alter_scram,
    60: metadata.describe_cluster,
    61: transaction_admin.describe_producers,
    65: transaction_admin.describe_transactions,
    66: transaction_admin.list_transactions,
    68: group_membership.consumer_group_heartbeat,
    74: configs.list_config_resources,
    75: metadata.describe_topic_partitions,
    76: group_membership.share_group_heartbeat,
}
"""The handler of each API, by Kafka's number."""


class UnsupportedRequest(Exception):
    """A request of an API or version that is not served.

    Attributes:
        answer: A frame to send; None if the connection is to be closed.
    """

    def __init__(self, why: str, answer: bytearray | None = None) -> None:
        super().__init__(why)
        self.answer = answer


def open_call(
    broker: Broker,
    frame: memoryview,
    connection: int,
    session: SaslSession | None,
    certified: str | None,
) -> RequestContext:
    """Decode a request and note it in the log.

    Args:
        broker: It got the request.
        frame: The bytes.
        connection: Number of the connection.
        session: Its authentication; None where none is needed.
        certified: The name in its client's certificate; None without one.

    Raises:
        UnsupportedRequest: Its API or version is not served, or not before a login.
        KafkaError: It is malformed.
    """
    if len(frame) < _REQUEST_START.size:
        raise UnsupportedRequest(f"a frame of {len(frame)} bytes is no request")
    key, version, correlation_id = _REQUEST_START.unpack_from(frame, 0)
    if key not in HANDLERS:
        raise UnsupportedRequest(f"the embedded cluster does not serve API {key}")
    lowest, highest = broker.versions[key]
    if not lowest <= version <= highest:
        if key == API_VERSIONS_KEY:
            answer = encode_frame(
                api_versions.unsupported_version_response(broker.versions), 0, correlation_id
            )
            raise UnsupportedRequest(f"ApiVersions v{version}", answer)
        raise UnsupportedRequest(f"{API_NAMES[key]} v{version} is not served")
    if session is not None and not session.may_serve(key):
        raise UnsupportedRequest(f"{API_NAMES[key]} without authentication")
    header = decode_request_header(frame)
    request = _decode(request_class(key), frame, version, header.body_offset)
    entry = ServedRequest(
        broker.now(),
        broker.node_id,
        key,
        API_NAMES[key],
        version,
        correlation_id,
        header.client_id,
        connection,
        len(frame),
        request,
    )
    broker.requests.add(entry)
    return RequestContext(
        broker,
        key,
        version,
        correlation_id,
        header.client_id,
        request,
        entry,
        session,
        certified,
        broker.authorizer if connection != INNER else None,
    )


def _decode(cls: type[Request], frame: memoryview, version: int, offset: int) -> Request:
    """Decode a request; bytes after its end are ignored as in Kafka: librdkafka sends some."""
    try:
        return cls.decode(frame, version, offset)
    except ProtocolError as error:
        if error.field != _PAST_THE_END or error.offset is None:
            raise
        return cls.decode(frame[: error.offset], version, offset)


def serve(call: RequestContext) -> Response | PendingResult[Response] | None:
    """Execute a request.

    Returns:
        The response; a PendingResult if it has to wait; None if the client expects none.

    Raises:
        CloseConnection: The connection must be closed instead.
    """
    return HANDLERS[call.api_key](call, call.request)
