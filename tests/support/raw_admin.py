"""Topic administration over a plain blocking socket, in a hundred lines of hand-packed protocol.

The test fixtures make and await topics with it, and find out whether a broker responds and how old
it is. It uses neither kclient nor another client, so that a test of kclient.Admin never depends on
itself. Apache Kafka 1.0 to 4.3 support the versions used: ApiVersions 0, Metadata 1, CreateTopics
2, DeleteTopics 1.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass

API_VERSIONS, METADATA, CREATE_TOPICS, DELETE_TOPICS, FETCH = 18, 3, 19, 20, 1
_UNREADY_ERRORS = {3, 5, 6, 41, 89}
"""Unknown topic, leader not available, not leader, not controller, throttled: ask again."""
_POLL = 0.02


class RawAdminError(RuntimeError):
    """A broker refused, or did not respond in time."""


@dataclass(frozen=True, slots=True)
class RawMetadata:
    """The parts of a Metadata response that the fixtures need."""

    brokers: dict[int, tuple[str, int]]
    controller: int
    topics: dict[str, tuple[int, dict[int, int]]]
    """Topic -> (error code, partition -> leader)."""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(">" + form, self.data, self.at)
        self.at += struct.calcsize(">" + form)
        return int(value)

    def text(self) -> str | None:
        length = self.number("h")
        if length < 0:
            return None
        self.at += length
        return self.data[self.at - length : self.at].decode()


def _string(text: str | None) -> bytes:
    if text is None:
        return struct.pack(">h", -1)
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def split_address(address: str) -> tuple[str, int]:
    """Split "host:port" or "[::1]:port" into its two parts; of a list, the first."""
    host, _, port = address.split(",")[0].strip().rpartition(":")
    return host.strip("[]"), int(port)


def _call(address: tuple[str, int], key: int, version: int, body: bytes, timeout: float) -> _Reader:
    header = struct.pack(">hhi", key, version, 1) + _string("kclient-tests")
    with socket.create_connection(address, timeout=timeout) as connection:
        connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        (size,) = struct.unpack(">i", _read(connection, 4))
        reader = _Reader(_read(connection, size))
    if reader.number("i") != 1:
        raise RawAdminError(f"{address} answered another request than the one it was asked")
    return reader


def _read(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise ConnectionError("the broker closed the connection before it answered")
        parts += part
    return bytes(parts)


def api_versions(bootstrap: str, timeout: float = 5.0) -> dict[int, tuple[int, int]]:
    """Return the API key -> (oldest, newest version) table of a broker."""
    reader = _call(split_address(bootstrap), API_VERSIONS, 0, b"", timeout)
    error = reader.number("h")
    if error:
        raise RawAdminError(f"ApiVersions failed with error code {error}")
    return {
        reader.number("h"): (reader.number("h"), reader.number("h"))
        for _ in range(reader.number("i"))
    }


def metadata(bootstrap: str, topics: list[str], timeout: float = 5.0) -> RawMetadata:
    """Return the brokers and the leaders of `topics`."""
    body = struct.pack(">i", len(topics)) + b"".join(map(_string, topics))
    reader = _call(split_address(bootstrap), METADATA, 1, body, timeout)
    brokers = {}
    for _ in range(reader.number("i")):
        node, host, port = reader.number("i"), reader.text(), reader.number("i")
        reader.text()  # rack
        brokers[node] = (host or "", port)
    controller = reader.number("i")
    found: dict[str, tuple[int, dict[int, int]]] = {}
    for _ in range(reader.number("i")):
        error, name = reader.number("h"), reader.text()
        reader.number("b")  # is_internal
        found[name or ""] = (error, dict(_partition(reader) for _ in range(reader.number("i"))))
    return RawMetadata(brokers, controller, found)


def _partition(reader: _Reader) -> tuple[int, int]:
    reader.number("h")  # error code: a missing leader shows in the leader's id as well
    index, leader = reader.number("i"), reader.number("i")
    for _ in ("replicas", "in sync"):
        for _ in range(reader.number("i")):
            reader.number("i")
    return index, leader


def wait_ready(bootstrap: str, timeout: float) -> None:
    """Wait until a broker responds to ApiVersions and names a live controller."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            api_versions(bootstrap)
            seen = metadata(bootstrap, [])
            if seen.brokers and seen.controller in seen.brokers:
                return
            reason = "it does not know a controller yet"
        except (OSError, RawAdminError, struct.error) as error:
            reason = str(error)
        if time.monotonic() > deadline:
            raise RawAdminError(f"{bootstrap} was not ready within {timeout:g} s: {reason}")
        time.sleep(_POLL)


def create_topic(
    bootstrap: str,
    name: str,
    *,
    partitions: int = 1,
    replication_factor: int = 1,
    configs: Mapping[str, str] | None = None,
    timeout: float = 30.0,
) -> None:
    """Create a topic and wait until every partition of it has a leader."""
    body = (
        struct.pack(">i", 1)
        + _string(name)
        + struct.pack(">ihi", partitions, replication_factor, 0)
    )
    body += struct.pack(">i", len(configs or {}))
    for key, value in (configs or {}).items():
        body += _string(key) + _string(value)
    body += struct.pack(">i?", int(timeout * 1000), False)
    _topic_call(bootstrap, CREATE_TOPICS, 2, body, name, timeout)
    deadline = time.monotonic() + timeout
    while True:
        error, leaders = metadata(bootstrap, [name]).topics[name]
        if not error and len(leaders) == partitions and min(leaders.values()) >= 0:
            return
        if time.monotonic() > deadline:
            raise RawAdminError(
                f"topic {name} has no leaders after {timeout:g} s: {error}, {leaders}"
            )
        time.sleep(_POLL)


def delete_topic(bootstrap: str, name: str, timeout: float = 30.0) -> None:
    """Delete a topic; returns when the controller has accepted it."""
    body = struct.pack(">i", 1) + _string(name) + struct.pack(">i", int(timeout * 1000))
    _topic_call(bootstrap, DELETE_TOPICS, 1, body, name, timeout)


def _topic_call(
    bootstrap: str, key: int, version: int, body: bytes, name: str, timeout: float
) -> None:
    deadline = time.monotonic() + timeout
    while True:
        seen = metadata(bootstrap, [])
        address = seen.brokers.get(seen.controller, split_address(bootstrap))
        reader = _call(address, key, version, body, timeout)
        reader.number("i")  # throttle time
        reader.number("i")  # one topic was asked for, one is in the response
        reader.text()
        error = reader.number("h")
        if not error:
            return
        message = reader.text() if key == CREATE_TOPICS else None
        if error not in _UNREADY_ERRORS or time.monotonic() > deadline:
            raise RawAdminError(
                f"topic {name}: API {key} failed with error code {error}: {message}"
            )
        time.sleep(_POLL)


DESCRIBE_CLUSTER = 60
_RELEASES: tuple[tuple[tuple[int, int, int], int, int], ...] = (
    ((4, 1, 0), FETCH, 18),
    ((3, 9, 0), FETCH, 17),
    ((3, 7, 0), FETCH, 16),
    ((3, 5, 0), FETCH, 15),
    ((3, 1, 0), FETCH, 13),
    ((2, 8, 0), DESCRIBE_CLUSTER, 0),
    ((2, 7, 0), FETCH, 12),
    ((2, 3, 0), FETCH, 11),
    ((2, 1, 0), FETCH, 10),
    ((2, 0, 0), FETCH, 8),
    ((1, 1, 0), FETCH, 7),
)
"""Release -> an API and its newest version that no older release has."""


def guess_release(versions: Mapping[int, tuple[int, int]]) -> tuple[int, int, int]:
    """Return the oldest release of Apache Kafka that responds with such an ApiVersions table."""
    oldest_fetch, newest_fetch = versions[FETCH]
    if oldest_fetch >= 4 and newest_fetch < 18:  # 4.0 was the first to drop old versions (KIP-896)
        return (4, 0, 0)
    for release, key, newest in _RELEASES:
        if versions.get(key, (0, -1))[1] >= newest:
            return release
    return (1, 0, 0)
