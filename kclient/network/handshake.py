"""The first words on a connection: version negotiation.

Decides only; ``connection.py`` writes what it says, and sees from it how far the handshake is. The
rules of ApiVersions (KIP-35, KIP-511): we begin with our highest version. A broker that doesn't
know it answers UNSUPPORTED_VERSION in a body of version 0, which lists the versions of this one
API that it does know (2.4 and later) or nothing at all (before), and then we ask again, lower
each time. Sans-IO.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kclient.errors import BrokerUnreachable, broker_error
from kclient.protocol.api_versions import NodeApiVersions, should_client_throttle
from kclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from kclient.protocol.message import Request

FIRST_API_VERSIONS = 4
"""The version of ApiVersions that a connection begins with."""
_UNSUPPORTED_VERSION = 35
_HEADER = struct.Struct(">ih")  # correlation id, then the error code that each version begins with
_BODY_OFFSET = 4  # the response header of ApiVersions is version 0 always

Step: TypeAlias = "tuple[Request, int]"
"""A message of the handshake and the version to write it in."""


class ClientInformation(NamedTuple):
    """Name and version of this client: in each request header, and per connection (KIP-511)."""

    client_id: str
    software_name: str
    software_version: str


class Handshake:
    """The handshake of one connection.

    Args:
        identity: Name and version of this client.
        where: The peer, for texts.
        node_id: The peer's id, for errors.

    Attributes:
        versions: What the broker supports; None before its response.
        throttle_ms: Throttle time of the ApiVersions response (KIP-219).
    """

    def __init__(self, identity: ClientInformation, where: str, node_id: int) -> None:
        self.versions: NodeApiVersions | None = None
        self.throttle_ms = 0
        self._identity = identity
        self._where = where
        self._node_id = node_id
        self._version = min(FIRST_API_VERSIONS, ApiVersionsRequest.MAX_VERSION)

    def begin(self) -> Step:
        """The first request."""
        request = ApiVersionsRequest(
            client_software_name=self._identity.software_name,
            client_software_version=self._identity.software_version,
        )
        return request, self._version

    def advance(self, frame: memoryview) -> Step | None:
        """Take the broker's response; return what to ask next, None where versions are known.

        Raises:
            ProtocolError: The answer can't be read.
            KafkaError: The broker refused us, or can't be spoken with.
        """
        refused = (
            frame.nbytes >= _HEADER.size and _HEADER.unpack_from(frame)[1] == _UNSUPPORTED_VERSION
        )
        version = 0 if refused else self._version
        response = ApiVersionsResponse.decode(frame, version, _BODY_OFFSET)
        if refused:
            return self._fall_back(response)
        if response.error_code:
            refusal = broker_error(response.error_code, f"ApiVersions v{version}")
            raise BrokerUnreachable(
                f"{self._where} refuses us: {refusal}", node_id=self._node_id
            ) from refusal
        self.versions = NodeApiVersions.from_response(response, node_id=self._node_id)
        if should_client_throttle(ApiVersionsRequest.API_KEY, version):
            self.throttle_ms = response.throttle_time_ms
        return None

    def _fall_back(self, response: ApiVersionsResponse) -> Step:
        """Ask again in a version that the broker knows; in 0 where it names none."""
        known = [k for k in response.api_keys if k.api_key == ApiVersionsRequest.API_KEY]
        lowest, highest = (known[0].min_version, known[0].max_version) if known else (0, 0)
        version = min(highest, self._version - 1)
        if version < max(lowest, ApiVersionsRequest.MIN_VERSION):
            raise BrokerUnreachable(
                f"{self._where} speaks ApiVersions {lowest} to {highest} only, and refused "
                f"version {self._version}",
                node_id=self._node_id,
                hint="this client speaks with brokers from Kafka 1.0 on",
            )
        self._version = version
        return self.begin()
