"""ApiVersions, and versions and APIs that don't exist."""

from __future__ import annotations

import struct

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.api_versions import ApiVersionsRequest
from tests.conformance.run import Run
from tests.conformance.scenario import scenario

_NAMED = ApiVersionsRequest("conformance", "1.0")
_PRODUCE, _FETCH, _API_VERSIONS, _NO_API = 0, 1, 18, 999


def header(key: int, version: int, flexible: bool = False) -> bytes:
    """A request header without a body."""
    return struct.pack(">hhih", key, version, 7, 1) + b"x" + (b"\0" if flexible else b"")


@scenario("ApiVersions")
async def in_every_version(run: Run) -> None:
    await run.ask_each(_NAMED, 0, 1, 2, 3, 4)


@scenario("ApiVersions", ErrorCode.INVALID_REQUEST)
async def names_of_software_that_can_not_be(run: Run) -> None:
    for name, version in (
        ("", "1"),
        ("x", ""),
        ("-x", "1"),
        ("x-", "1"),
        ("a b", "1"),
        ("x", "1_0"),
        ("ä", "1"),
        ("x.y-z", "1.0-beta"),
    ):
        await run.ask_each(ApiVersionsRequest(name, version), 3, 4, note=f"{name!r} {version!r}")


@scenario("ApiVersions")
async def a_version_to_come_is_answered_in_version_0(run: Run) -> None:
    for version in (5, 99, 32767):
        peer = run.peer()
        await peer.ask_raw("ApiVersions", header(_API_VERSIONS, version, True), f"v{version}")


@scenario("ApiVersions")
async def the_connection_goes_on_after_a_version_to_come(run: Run) -> None:
    peer = run.peer()
    await peer.ask_raw("ApiVersions", header(_API_VERSIONS, 99, True), "v99")
    await peer.ask(_NAMED, 3)


@scenario("ApiVersions")
async def it_may_be_asked_twice(run: Run) -> None:
    await run.ask(_NAMED, 3)
    await run.ask(ApiVersionsRequest("another", "2.0"), 3)


@scenario("ApiVersions")
async def what_is_not_spoken_closes_the_connection(run: Run) -> None:
    for note, frame in (
        ("an API that there isn't", header(_NO_API, 0)),
        ("Produce v2", header(_PRODUCE, 2)),
        ("Produce v99", header(_PRODUCE, 99)),
        ("Fetch v3", header(_FETCH, 3)),
        ("ApiVersions v-1", header(_API_VERSIONS, -1)),
        ("half a header", b"\0\x12\0"),
        ("nothing", b""),
        ("a body that ends too soon", header(_FETCH, 4)),
    ):
        await run.peer().ask_raw("ApiVersions", frame, note)
