"""Delegation tokens of the embedded cluster and of a real broker: codes, times, and logins."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from kclient.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from kclient.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kclient.protocol.messages.metadata import MetadataRequest
from kclient.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from kclient.testing import Cluster, ClusterSecurity, ThreadedCluster
from tests.conformance.plain import plain
from tests.security.test_logins import MECHANISMS
from tests.support.broker_settings import PLAIN_USERS, USERS
from tests.support.kafka import RunningBroker
from tests.unit.testing.raw_peer import RawPeer
from tests.unit.testing.sasl_peer import logged_in

HOUR = 3_600_000
DAY, WEEK = 24 * HOUR, 7 * 24 * HOUR
FIRST_WITH_OWNERS = 3
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SHORT = 3000
"""Milliseconds that a token lives that is to expire; on a busy machine, too, it is used before."""


class Story:
    """Requests and their answers, of one side.

    Ids are replaced by the order in which they came, and times by how far they are from now.
    ``newest`` is the last version of CreateDelegationToken that both sides speak.
    """

    def __init__(self, address: str, newest: int) -> None:
        self.address = address
        self.newest = newest
        self.said: list[object] = []
        self._names: dict[str, str] = {}

    def user(self, name: str) -> Any:
        return logged_in(self.address, name, USERS[name])

    async def ask(self, peer: RawPeer, request: Any, version: int) -> Any:
        found = await peer.call(request, version)
        self.said.append((type(request).__name__, self._known(plain(found, version))))
        return found

    def _known(self, value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: self._known(one, key) for key, one in value.items()}
        if isinstance(value, list):
            return [self._known(one) for one in value]
        if name in ("token_id", "hmac") and value:
            return self._names.setdefault(value, f"{name} {len(self._names)}")
        if "timestamp" in name and value > 0:
            off = value - time.time() * 1000
            return min((0, SHORT, HOUR, DAY, WEEK), key=lambda one: abs(off - one))
        if "timestamp" in name and self.newest < FIRST_WITH_OWNERS:
            return "none"  # 0 with KRaft, -1 before
        return value

    async def published(self, peer: RawPeer, token: Any, *, gone: bool = False) -> None:
        """Wait until the broker knows it, or no more."""
        owner = DescribeDelegationTokenOwner(token.principal_type, token.principal_name)
        async with asyncio.timeout(20.0):
            while True:
                found = await peer.call(DescribeDelegationTokenRequest([owner]), 2)
                if (token.token_id in [one.token_id for one in found.tokens]) is not gone:
                    return
                await asyncio.sleep(0.02)


def create(
    *renewers: str, owner: str = "", kind: str = "User", lifetime_ms: int = -1
) -> CreateDelegationTokenRequest:
    wanted = [CreatableRenewers(kind, one) for one in renewers]
    return CreateDelegationTokenRequest(owner and "User", owner, wanted, lifetime_ms)


async def life_of_a_token(story: Story) -> None:
    async with story.user("alice") as alice, story.user("carol") as carol:
        for version in range(1, story.newest + 1):
            token = await story.ask(alice, create("carol"), version)
        await story.published(alice, token)
        await story.ask(carol, RenewDelegationTokenRequest(token.hmac, -1), 2)
        await story.ask(alice, RenewDelegationTokenRequest(token.hmac, HOUR), 1)
        if story.newest >= FIRST_WITH_OWNERS:  # there was no limit before
            await story.ask(alice, RenewDelegationTokenRequest(token.hmac, 10 * WEEK), 2)
        await story.ask(carol, ExpireDelegationTokenRequest(token.hmac, 10 * WEEK), 2)
        await story.ask(alice, ExpireDelegationTokenRequest(token.hmac, HOUR), 1)
        await story.ask(alice, ExpireDelegationTokenRequest(token.hmac, -1), 2)
        await story.published(alice, token, gone=True)
        await story.ask(alice, RenewDelegationTokenRequest(token.hmac, -1), 2)
        await story.ask(alice, ExpireDelegationTokenRequest(token.hmac, -1), 2)


async def token_of_somebody_else(story: Story) -> None:
    async with story.user("alice") as alice, story.user("zoe") as zoe:
        has_owners = story.newest >= FIRST_WITH_OWNERS
        token = await story.ask(
            alice if has_owners else zoe, create(owner="zoe" if has_owners else ""), story.newest
        )
        await story.published(zoe, token)
        await story.ask(alice, RenewDelegationTokenRequest(token.hmac, -1), 2)
        await story.ask(alice, ExpireDelegationTokenRequest(token.hmac, -1), 2)
        await story.ask(zoe, RenewDelegationTokenRequest(token.hmac, -1), 2)
        await story.ask(zoe, ExpireDelegationTokenRequest(token.hmac, -1), 2)


async def what_can_not_be(story: Story) -> None:
    async with story.user("alice") as alice:
        await story.ask(alice, create("carol", kind="Group"), 2)
        await story.ask(alice, create("carol", kind="Group"), 1)
        await story.ask(alice, RenewDelegationTokenRequest(b"unknown", -1), 2)
        await story.ask(alice, ExpireDelegationTokenRequest(b"", -1), 2)
        await story.ask(alice, DescribeDelegationTokenRequest([]), story.newest)
        nobody = DescribeDelegationTokenOwner("User", "nobody")
        await story.ask(alice, DescribeDelegationTokenRequest([nobody]), story.newest)


async def describe(story: Story) -> None:
    async with story.user("carol") as carol:
        token = await story.ask(carol, create("zoe", "alice", lifetime_ms=HOUR), story.newest)
        await story.published(carol, token)
        for version in range(1, story.newest + 1):
            found = await carol.call(
                DescribeDelegationTokenRequest([DescribeDelegationTokenOwner("User", "carol")]),
                version,
            )
            mine = [one for one in found.tokens if one.token_id == token.token_id]
            for one in mine:
                one.renewers.sort(key=lambda renewer: str(renewer.principal_name))
            found.tokens = mine
            story.said.append(story._known(plain(found, version)))
        await carol.call(ExpireDelegationTokenRequest(token.hmac, -1), 2)


async def logins(story: Story) -> None:
    async with story.user("alice") as alice:
        token = await story.ask(alice, create(), story.newest)
        await story.published(alice, token)
    secret = base64.b64encode(token.hmac).decode()
    for mechanism in SCRAM:
        async with logged_in(story.address, token.token_id, secret, mechanism, token=True) as peer:
            await story.ask(peer, create(), story.newest)
            await story.ask(peer, RenewDelegationTokenRequest(token.hmac, -1), 2)
            await story.ask(peer, ExpireDelegationTokenRequest(token.hmac, -1), 2)
            await story.ask(peer, DescribeDelegationTokenRequest(None), story.newest)
            assert (await peer.call(MetadataRequest([]), 9)).brokers
    for name, password, by_token in (
        (token.token_id, "wrong", True),
        ("unknown", secret, True),
        (token.token_id, secret, False),
        ("zoe", USERS["zoe"], True),
    ):
        with pytest.raises(PermissionError) as refused:
            async with logged_in(story.address, name, password, SCRAM[0], token=by_token):
                pass
        story.said.append(str(refused.value))


async def end_of_a_token(story: Story) -> None:
    async with story.user("alice") as alice:
        token = await story.ask(alice, create(lifetime_ms=SHORT), story.newest)
        await story.published(alice, token)
    secret = base64.b64encode(token.hmac).decode()
    async with logged_in(story.address, token.token_id, secret, SCRAM[0], token=True) as peer:
        await peer.call(MetadataRequest([]), 9)
        await asyncio.sleep(SHORT / 1000 + 0.1)
        story.said.append(await outcome(peer))
    async with story.user("alice") as alice:  # again, as sessions end, too
        await story.ask(alice, RenewDelegationTokenRequest(token.hmac, -1), 2)
        await story.ask(alice, ExpireDelegationTokenRequest(token.hmac, 1000), 2)
        if story.newest >= FIRST_WITH_OWNERS:  # before, it had a session without an end
            name = token.token_id
            async with logged_in(story.address, name, secret, SCRAM[0], token=True) as peer:
                story.said.append(await outcome(peer))
            await story.ask(alice, ExpireDelegationTokenRequest(token.hmac, -1), 2)


async def outcome(peer: RawPeer) -> str:
    try:
        await peer.call(MetadataRequest([]), 9)
    except (OSError, asyncio.IncompleteReadError):
        return "closed"
    return "answered"


STORIES: dict[str, Callable[[Story], Any]] = {
    one.__name__: one
    for one in (
        life_of_a_token,
        token_of_somebody_else,
        what_can_not_be,
        describe,
        logins,
        end_of_a_token,
    )
}


@pytest.fixture
def newest(pytestconfig: pytest.Config) -> int:
    """Version 3, with owners, came with Kafka 3.3."""
    release = str(pytestconfig.getoption("--broker"))
    return FIRST_WITH_OWNERS - (release.startswith("2."))


@pytest.fixture(scope="module")
def embedded() -> Iterator[str]:
    security = ClusterSecurity(PLAIN_USERS, mechanisms=MECHANISMS, session_lifetime=60.0)
    with ThreadedCluster(Cluster(brokers=1, security=security)) as cluster:
        yield cluster.bootstrap


@pytest.mark.parametrize("name", STORIES)
async def test_a_token_has_the_same_story(
    secured: RunningBroker, embedded: str, newest: int, name: str
) -> None:
    real, ours = Story(secured.sasl_bootstrap, newest), Story(embedded, newest)
    await asyncio.gather(STORIES[name](real), STORIES[name](ours))
    assert ours.said == real.said


async def test_without_a_login_there_are_no_tokens(secured: RunningBroker, newest: int) -> None:
    async with Cluster(brokers=1) as cluster:
        real, ours = Story(secured.bootstrap, newest), Story(cluster.bootstrap, newest)
        for story in (real, ours):
            async with RawPeer.to(story.address) as peer:
                await story.ask(peer, create(), story.newest)
                await story.ask(peer, RenewDelegationTokenRequest(b"x", -1), 2)
                await story.ask(peer, ExpireDelegationTokenRequest(b"x", -1), 2)
                await story.ask(peer, DescribeDelegationTokenRequest(None), story.newest)
        assert ours.said == real.said
        assert str(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.name) in str(real.said[0])
