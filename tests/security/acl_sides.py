"""A secured broker and an embedded cluster with an authorizer, asked the same raw requests."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from kclient.protocol import api_versions
from kclient.protocol.message import Request
from kclient.protocol.messages.create_acls import AclCreation
from kclient.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kclient.protocol.messages.init_producer_id import InitProducerIdRequest
from kclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kclient.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from kclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kclient.protocol.primitives import ZERO_UUID
from tests.conformance.plain import plain
from tests.support.broker_settings import ORDINARY_USER, PLAIN_USERS
from tests.support.raw_admin import split_address
from tests.support.raw_connection import RawConnection
from tests.unit.testing import acl_calls, group_calls

SUPER_USER = "alice"
OWN = "acl-"
"""What the names of all resources of these tests begin with."""
TOPIC, GROUP, ID = f"{OWN}topic", f"{OWN}group", f"{OWN}id"
DOOMED = tuple(f"{OWN}doomed-{number}" for number in range(3))
"""Topics to delete."""
_NAMES = ("name", "group_id", "transactional_id", "topic", "resource_name")
_SHOWN = (*_NAMES, "num_partitions", "replication_factor", "key")
_PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class Ids:
    """Ids of topics on one side."""

    topic: bytes
    doomed: tuple[bytes, ...]


class Side:
    """One of the two.

    Args:
        address: Of a listener of SASL_PLAINTEXT.
    """

    def __init__(self, address: str) -> None:
        self._address = split_address(address)
        self.ids = self._prepare()

    def ask(self, request: Request, version: int, username: str = ORDINARY_USER) -> dict[str, Any]:
        """Ask over a connection of its own, as sessions are short; note where it is closed."""
        kind = api_versions.request_class(request.API_KEY).RESPONSE
        with RawConnection(self._address, timeout=20.0) as peer:
            peer.ask(SaslHandshakeRequest("PLAIN"), 1, SaslHandshakeResponse)
            words = f"\0{username}\0{PLAIN_USERS[username]}".encode()
            peer.ask(SaslAuthenticateRequest(words), 1, SaslAuthenticateResponse)
            try:
                return plain(peer.ask(request, version, kind), version)
            except ConnectionError:
                return {"error_code": "closed"}

    def _prepare(self) -> Ids:
        topics = [CreatableTopic(one, 1, 1) for one in (TOPIC, *DOOMED)]
        self._patiently(CreateTopicsRequest(topics, 9000), 5)
        for kind, name in enumerate((GROUP, ID)):
            self._patiently(group_calls.find(name, kind=kind), 4)
        for transactional_id in (None, ID):
            self._patiently(InitProducerIdRequest(transactional_id, 60_000), 4)
        self._patiently(group_calls.commit(GROUP, TOPIC, (0, 0)), 7)
        named = [MetadataRequestTopic(ZERO_UUID, one) for one in (TOPIC, *DOOMED)]
        found = self._patiently(MetadataRequest(named, False), 12)
        by_name = {one["name"]: bytes.fromhex(one["topic_id"]) for one in found["topics"]}
        return Ids(by_name[TOPIC], tuple(by_name[one] for one in DOOMED))

    def _patiently(self, request: Request, version: int) -> dict[str, Any]:
        """Ask as a super user until all codes are 0."""
        end = time.monotonic() + _PATIENCE
        while True:
            found = self.ask(request, version, SUPER_USER)
            if set(codes(found)) == {"NONE (0)"}:
                return found
            assert time.monotonic() < end, found
            time.sleep(0.05)

    def create(self, *acls: AclCreation) -> None:
        """Create ACLs, and wait until the broker has them."""
        assert set(codes(self.ask(acl_calls.create(*acls), 3, SUPER_USER))) == {"NONE (0)"}
        for one in acls:
            self._wait(
                acl_calls.describe(
                    one.resource_name,
                    one.resource_type,
                    pattern=one.resource_pattern_type,
                    principal=one.principal,
                    host=one.host,
                    operation=one.operation,
                    permission=one.permission_type,
                ),
                present=True,
            )

    def clear(self) -> None:
        """Delete all ACLs, and wait until the broker has none."""
        self.ask(acl_calls.delete(acl_calls.one_filter(principal=None)), 3, SUPER_USER)
        self._wait(acl_calls.describe(principal=None), present=False)

    def _wait(self, wanted: Request, *, present: bool) -> None:
        end = time.monotonic() + _PATIENCE
        while bool(self.ask(wanted, 3, SUPER_USER)["resources"]) is not present:
            assert time.monotonic() < end, wanted
            time.sleep(0.005)


def codes(found: Any) -> list[str]:
    """All error codes of a response."""
    if isinstance(found, list):
        return [code for one in found for code in codes(one)]
    if not isinstance(found, dict):
        return []
    own = [value for name, value in found.items() if name.endswith("error_code")]
    return own + [code for one in found.values() for code in codes(one)]


def facts(found: Any, field: str = "", *, listing: bool = False) -> Any:
    """What of a response must be equal: codes, names, authorized operations; lists without order.

    In a ``listing`` of all that there is, entries of others are left out. Ids are known or zero.
    """
    if isinstance(found, dict):
        kept = {name: facts(one, name, listing=listing) for name, one in found.items()}
        return {name: one for name, one in kept.items() if one not in (None, [], {})}
    if isinstance(found, list):
        entries = [facts(one, field, listing=listing) for one in found]
        return sorted((one for one in entries if not (listing and _is_of_others(one))), key=repr)
    if field == "topic_id":
        return "zero" if found == ZERO_UUID.hex() else "known"
    shown = field.endswith(("error_code", "authorized_operations")) or field in _SHOWN
    return found if shown else None


def _is_of_others(entry: Any) -> bool:
    names = [entry[one] for one in _NAMES if entry.get(one)] if isinstance(entry, dict) else []
    return bool(names) and not any(name.startswith(OWN) for name in names)
