"""Ordinary users of the secured broker, one per test, and waiting until brokers know of a change.

Brokers of KRaft apply what an administrator changed a moment after the controller has confirmed it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import kclient
from kclient import AclBinding, KafkaError, ScramUpsertion, Security
from tests.support import tls
from tests.support.kafka import RunningBroker

T = TypeVar("T")
PATIENCE = 15.0


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    """Call until it returns True."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if await true():
                return
            await asyncio.sleep(0.02)


async def eventually(call: Callable[[], Awaitable[T]]) -> T:
    """Call until it succeeds."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await call()
            except KafkaError:
                await asyncio.sleep(0.05)


async def eventually_raises(error: type[KafkaError], call: Callable[[], Awaitable[object]]) -> None:
    """Call until it fails with ``error``; any other error is raised."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await call()
            except error:
                return
            await asyncio.sleep(0.05)


async def user(admin: kclient.Admin, broker: RunningBroker, name: str) -> Security:
    """Make a user of SCRAM who may nothing, and log in once."""
    await admin.alter_user_scram_credentials([ScramUpsertion(name, "a password")])
    security = Security.sasl_scram(name, "a password", ca_file=tls.certificate())
    await eventually(lambda: log_in(broker.sasl_tls_bootstrap, security))
    return security


async def log_in(bootstrap: str, security: Security) -> None:
    """Log in, and ask the broker for something that everybody may know."""
    async with kclient.Admin(bootstrap, security=security) as client:
        await client.list_topics()


def certified(name: str, directory: Path) -> Security:
    """A client of the SSL listener whose principal is ``User:name``."""
    certificate = tls.client_certificate(name, directory)
    return Security.tls(ca_file=tls.certificate(), certificate_file=certificate)


async def shown(admin: kclient.Admin, *bindings: AclBinding) -> None:
    """Create ACLs, and wait until the broker has them."""
    await admin.create_acls(bindings)

    async def are_shown() -> bool:
        return set(bindings) <= set(await admin.describe_acls())

    await until(are_shown)
