"""Users of SCRAM that requests make, change and delete, beside those of a test."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

import kclient
from kclient import Security
from kclient.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kclient.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from kclient.testing import Cluster, ClusterSecurity, ErrorCode
from tests.unit.testing.raw_peer import RawPeer
from tests.unit.testing.sasl_peer import logged_in

MECHANISMS = {1: ("SCRAM-SHA-256", "sha256"), 2: ("SCRAM-SHA-512", "sha512")}
ITERATIONS = 5000


def upsertion(username: str, password: str, number: int = 2) -> ScramCredentialUpsertion:
    name = MECHANISMS[number][1]
    salted = hashlib.pbkdf2_hmac(name, password.encode(), b"salt", ITERATIONS)
    return ScramCredentialUpsertion(username, number, ITERATIONS, b"salt", salted)


async def alter(peer: RawPeer, *wanted: object) -> list[int]:
    """The codes of the outcomes."""
    upsertions = [one for one in wanted if isinstance(one, ScramCredentialUpsertion)]
    deletions = [one for one in wanted if isinstance(one, ScramCredentialDeletion)]
    found = await peer.call(AlterUserScramCredentialsRequest(deletions, upsertions), 0)
    return [one.error_code for one in found.results]


async def users(peer: RawPeer) -> dict[str, list[tuple[int, int]]]:
    found = await peer.call(DescribeUserScramCredentialsRequest(None), 0)
    return {
        one.user: [(info.mechanism, info.iterations) for info in one.credential_infos]
        for one in found.results
    }


async def may_log_in(cluster: Cluster, username: str, password: str, number: int = 2) -> bool:
    mechanism: Any = MECHANISMS[number][0]
    found = Security.sasl_scram(username, password, mechanism=mechanism, unencrypted=True)
    try:
        async with kclient.Admin(cluster.bootstrap, security=found) as admin:
            await admin.list_topics()
    except kclient.BootstrapFailed:
        return False
    return True


async def test_a_user_that_a_request_made_logs_in_at_every_broker() -> None:
    security = ClusterSecurity({"alice": "first"})
    async with Cluster(brokers=3, security=security) as cluster:
        async with logged_in(cluster, "alice", "first") as peer:
            assert await users(peer) == {"alice": [(1, 4096), (2, 4096)]}
            assert await alter(peer, upsertion("bob", "secret")) == [0]
            assert (await users(peer))["bob"] == [(2, ITERATIONS)]
        for broker in cluster.brokers.values():
            async with logged_in(broker.address, "bob", "secret", "SCRAM-SHA-512"):
                pass
        assert not await may_log_in(cluster, "bob", "secret", number=1)
        assert not await may_log_in(cluster, "bob", "wrong")


async def test_the_last_change_of_a_test_s_user_counts() -> None:
    security = ClusterSecurity({"alice": "first"})
    async with Cluster(brokers=1, security=security) as cluster:
        async with logged_in(cluster, "alice", "first") as peer:
            assert await alter(peer, upsertion("alice", "second")) == [0]
            assert await may_log_in(cluster, "alice", "second")
            assert not await may_log_in(cluster, "alice", "first")
            assert await may_log_in(cluster, "alice", "first", number=1)
            security.set_password("alice", "third")
            assert await may_log_in(cluster, "alice", "third")
            assert not await may_log_in(cluster, "alice", "second")
            assert await alter(peer, ScramCredentialDeletion("alice", 2)) == [0]
            assert not await may_log_in(cluster, "alice", "third")
            assert await users(peer) == {"alice": [(1, 4096)]}
            security.set_password("alice", None)
            assert await users(peer) == {}


async def test_users_outlive_controllers_and_restarts() -> None:
    async with Cluster(brokers=3, security=ClusterSecurity({"alice": "first"})) as cluster:
        async with logged_in(cluster, "alice", "first") as peer:
            await alter(peer, upsertion("bob", "secret"))
        cluster.move_controller()
        for node_id in cluster.brokers:
            await cluster.restart(node_id)
        assert await may_log_in(cluster, "bob", "secret")


@pytest.mark.parametrize("after", [False, True])
async def test_a_fault_is_each_user_s_outcome(after: bool) -> None:
    async with Cluster(brokers=1) as cluster, RawPeer.to(cluster.bootstrap) as peer:
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        cluster.faults.error("AlterUserScramCredentials", code, after=after)
        wanted = [upsertion(one, "secret") for one in ("alice", "bob")]
        assert await alter(peer, *wanted) == [code, code]
        assert sorted(await users(peer)) == (["alice", "bob"] if after else [])
        cluster.faults.error("DescribeUserScramCredentials", code)
        found = await peer.call(DescribeUserScramCredentialsRequest(None), 0)
        assert found.error_code == code


async def test_without_a_controller_nothing_is_altered() -> None:
    async with Cluster(brokers=2) as cluster:
        cluster.isolate(cluster.controller_id)
        stale = next(one for one in cluster.brokers if one != cluster.controller_id)
        async with RawPeer.to(cluster.brokers[stale].address) as peer:
            assert await alter(peer, upsertion("alice", "x")) == [ErrorCode.NOT_CONTROLLER]
            assert await users(peer) == {}
