"""TLS through the proxy: it passes unchanged, and a handshake can be stalled at each flight."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
import trustme

import kclient
from kclient.errors import BootstrapFailed
from kclient.security import Security
from tests.faults import After, Cut, FaultProxy, Ignore, Refuse, Rule, Trickle
from tests.faults.raw import Raw, correlation_id
from tests.support import tls
from tests.unit.network.scripted_broker import ScriptedBroker


class Listener(NamedTuple):
    """A TLS listener behind a proxy, and how to trust it."""

    proxy: FaultProxy
    trusting: ssl.SSLContext


@pytest_asyncio.fixture
async def listener(broker: Any) -> AsyncIterator[Listener]:
    """The listener of the broker under test; the embedded cluster has none: a scripted one."""
    trusting = ssl.create_default_context()
    if broker.tls_bootstrap is not None:
        trusting.load_verify_locations(tls.certificate())
        async with FaultProxy(broker.tls_bootstrap, opaque=True) as proxy:
            yield Listener(proxy, trusting)
        return
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(trusting)
    async with (
        ScriptedBroker(ssl_context=context) as scripted,
        FaultProxy(f"127.0.0.1:{scripted.port}", opaque=True) as proxy,
    ):
        yield Listener(proxy, trusting)


async def answered_over_tls(listener: Listener) -> bool:
    async with Raw(listener.proxy.bootstrap, tls=listener.trusting) as raw:
        raw.say()
        return correlation_id(await raw.frame()) == 1


def short_admin(listener: Listener) -> kclient.Admin:
    """A client whose handshake times out soon."""
    return kclient.Admin(
        listener.proxy.bootstrap,
        security=Security.tls(ssl_context=listener.trusting),
        bootstrap_timeout=0.6,
        connection_setup_timeout=0.3,
        connection_setup_timeout_max=0.3,
    )


async def test_tls_passes_as_it_is(listener: Listener) -> None:
    assert await answered_over_tls(listener)
    listener.proxy.add(Trickle(on="answer", interval=0.001, size=50))
    assert await answered_over_tls(listener)


@pytest.mark.parametrize("on", ["request", "answer"])
@pytest.mark.parametrize("flight", [0, 1, 2])
async def test_a_handshake_stalls_at_each_flight(listener: Listener, on: Any, flight: int) -> None:
    proxy = listener.proxy
    rule = proxy.add(After(flight, "silent", on=on, unit="frames", times=None))
    with pytest.raises(BootstrapFailed):
        async with short_admin(listener):
            raise AssertionError("a stalled handshake was finished")
    assert rule.hits >= 1
    proxy.clear()
    assert await answered_over_tls(listener)


async def test_a_connect_to_a_silent_listener_times_out(listener: Listener) -> None:
    rule = listener.proxy.add(Ignore(times=None))
    with pytest.raises(BootstrapFailed):
        async with short_admin(listener):
            raise AssertionError("nobody answered")
    assert rule.hits >= 1


@pytest.mark.parametrize("fault", ["Refuse", "Cut", "After"])
async def test_a_handshake_that_is_cut_fails_and_another_one_works(
    listener: Listener, fault: str
) -> None:
    rules: dict[str, Rule] = {
        "Refuse": Refuse(times=None),
        "Cut": Cut(None, on="answer", at=0.5, times=None),
        "After": After(300, on="answer", times=None),
    }
    rule = listener.proxy.add(rules[fault])
    with pytest.raises(BootstrapFailed):
        async with short_admin(listener):
            raise AssertionError("a handshake that was cut was finished")
    assert rule.hits >= 1 and listener.proxy.cuts == rule.hits
    listener.proxy.clear()
    assert await answered_over_tls(listener)
