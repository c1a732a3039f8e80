"""Visits bootstrap addresses, then all addresses that their brokers advertise.

``examine`` is the entry point. Each address is visited by a task of its own; a visit is a list of
steps, each with the whole time-out, and ends with the first that fails.
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

from kclient.clock import SystemClock
from kclient.doctor import causes
from kclient.doctor.causes import Peer, text_of
from kclient.doctor.findings import Diagnosis, Step, Target, failed, succeeded
from kclient.doctor.probe import (
    FAILURES,
    Wire,
    certificate_on,
    connect,
    further_wire,
    identify,
    late_alert,
    unverified_certificate,
    wire_over,
)
from kclient.doctor.releases import release_of
from kclient.errors import AuthenticationFailed, broker_error, some_of
from kclient.network.dialer import resolve
from kclient.network.sasl.exchange import authenticate, check_without_sasl
from kclient.network.sasl.login import Login
from kclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kclient.protocol.messages.sasl_handshake import SaslHandshakeResponse

if TYPE_CHECKING:
    from kclient.config import NetworkConfig
    from kclient.network.dialer import SocketAddress
    from kclient.protocol.message import Request, Response

Report: TypeAlias = "Callable[[Step], object]"
Take: TypeAlias = "Callable[[], Awaitable[str]]"
"""Takes a step; returns what was seen."""
Explain: TypeAlias = "Callable[[Exception, str], Awaitable[Diagnosis]]"
"""Finds the cause of an error; its text is given, too."""
_FAMILIES: dict[int, str] = {socket.AF_INET: "IPv4", socket.AF_INET6: "IPv6"}
_SHOWN = 5


class Diagnosed(Exception):
    """A step failed, for a reason that is known already."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(diagnosis.detail)
        self.diagnosis = diagnosis


async def examine(config: NetworkConfig, report: Report, *, timeout: float) -> None:
    """Examine all addresses of ``config``, and those that brokers advertise there.

    Args:
        config: Bootstrap addresses, security and the client id.
        report: Called with each step, in the order of the addresses.
        timeout: Seconds for each step; one that fails may take as long twice more to find out why.

    Cancellation: all connections are closed.
    """
    clock = SystemClock()
    login = None
    if config.security.sasl is not None:
        login = Login(
            config.security.sasl,
            clock,
            random.Random(),
            lambda coroutine, name: asyncio.get_running_loop().create_task(coroutine, name=name),
        )
    try:
        targets = [Target(host, port) for host, port in dict.fromkeys(config.bootstrap)]
        visits = [Visit(target, config, login, clock, timeout) for target in targets]
        await _report_all(visits, report)
        described = [one for one in visits if one.brokers]
        expected = described[0].cluster_id if described else None
        for one in described:
            if one.cluster_id != expected:
                found = causes.other_cluster(one.target, one.cluster_id, expected)
                report(failed(one.target, "Metadata", found))
        own = [one for one in described if one.cluster_id == expected]
        advertised = _advertised(own, set(config.bootstrap))
        further = [Visit(target, config, login, clock, timeout) for target in advertised]
        for one in further:
            one.expected_cluster_id = expected
        await _report_all(further, report)
    finally:
        if login is not None:
            login.close()


def _advertised(visits: Iterable[Visit], visited: Collection[tuple[str, int]]) -> list[Target]:
    """The addresses of all brokers, without those that were visited."""
    found = {(one.host, one.port): one for visit in visits for one in visit.brokers}
    return sorted(
        (target for address, target in found.items() if address not in visited),
        key=lambda target: target.node_id or 0,
    )


async def _report_all(visits: Collection[Visit], report: Report) -> None:
    async with asyncio.TaskGroup() as group:
        for visit in visits:
            group.create_task(visit.run())
        for visit in visits:
            while (step := await visit.steps.get()) is not None:
                report(step)


class Visit:
    """The visit to one address. Tasks: the caller's, in which it runs.

    Args:
        target: The address.
        config: The client's settings.
        login: The client's credentials; None without SASL.
        clock: For the time that certificates are compared with.
        timeout: Seconds for each step.

    Attributes:
        target: The address.
        steps: What was found; None is the last one.
        brokers: All brokers of the cluster; empty before Metadata.
        cluster_id: Their cluster.
        expected_cluster_id: The only right one; None for any.
    """

    def __init__(
        self,
        target: Target,
        config: NetworkConfig,
        login: Login | None,
        clock: SystemClock,
        timeout: float,
    ) -> None:
        self.steps: asyncio.Queue[Step | None] = asyncio.Queue()
        self.brokers: list[Target] = []
        self.cluster_id: str | None = None
        self.expected_cluster_id: str | None = None
        self.target = target
        self._security = config.security
        self._client_id = config.client_id
        self._login = login
        self._clock = clock
        self._timeout = timeout
        self._context: ssl.SSLContext | None = None
        self._addresses: Sequence[SocketAddress] = ()
        self._socket: socket.socket | None = None
        self._wire: Wire | None = None
        self._offered: list[str] = []

    async def run(self) -> None:
        """Take the steps up to the first that fails. Cancellation: the connection is closed."""
        steps: list[tuple[str, Take, Explain]] = [
            ("DNS", self._resolve, self._why_unresolved),
            ("TCP", self._connect, self._why_unresolved),
        ]
        if self._security.tls_context is not None:
            steps.append(("TLS", self._encrypt, self._why_not_encrypted))
        steps.append(("ApiVersions", self._negotiate, self._why_no_versions))
        if self._login is not None:
            steps.append(("SASL", self._log_in, self._why_not_logged_in))
        steps.append(("Metadata", self._describe, self._why_no_metadata))
        try:
            for name, take, explain in steps:
                if not await self._take(name, take, explain):
                    break
        finally:
            if self._wire is not None:
                self._wire.close()
            elif self._socket is not None:
                self._socket.close()
            self.steps.put_nowait(None)

    async def _take(self, name: str, take: Take, explain: Explain) -> bool:
        # Their parts have time-outs of their own.
        timeout = None if name in ("TCP", "SASL") else self._timeout
        try:
            async with asyncio.timeout(timeout):
                detail = await take()
        except Diagnosed as known:
            found = known.diagnosis
        except FAILURES as error:
            found = await explain(error, text_of(error, self._timeout))
        else:
            self.steps.put_nowait(succeeded(self.target, name, detail))
            return True
        self.steps.put_nowait(failed(self.target, name, causes.for_target(self.target, found)))
        return False

    # DNS and TCP

    async def _resolve(self) -> str:
        self._addresses = await resolve(self.target.host, self.target.port)
        return ", ".join(
            f"{where[0]} ({_FAMILIES.get(family, 'other')})" for family, where in self._addresses
        )

    async def _why_unresolved(self, error: Exception, detail: str) -> Diagnosis:
        return causes.unresolved(self.target, detail)

    async def _connect(self) -> str:
        outcomes = await connect(self._addresses, self._timeout)
        self._socket = next((one for one in outcomes if isinstance(one, socket.socket)), None)
        detail = "; ".join(
            f"{where[0]}: "
            + (text_of(one, self._timeout) if isinstance(one, Exception) else "connected")
            for (_, where), one in zip(self._addresses, outcomes, strict=True)
        )
        if self._socket is None:
            errors = [one for one in outcomes if isinstance(one, Exception)]
            raise Diagnosed(causes.not_connected(self.target, errors, detail))
        # Further connections go to the address that is open.
        self._addresses = [self._addresses[outcomes.index(self._socket)]]
        return detail

    # TLS

    async def _encrypt(self) -> str:
        self._context = self._security.ssl_context
        wire = await self._speak()
        certificate, tls = certificate_on(wire), wire.tls
        assert self._context is not None and tls is not None
        cipher = tls.cipher()
        parts = [f"{tls.version()}, {cipher[0] if cipher else 'no cipher'}"]
        if self._context.verify_mode is ssl.CERT_NONE:
            parts.append("NOT verified, as the settings say")
        elif not self._context.check_hostname:
            parts.append("host name NOT verified, as the settings say")
        if certificate is not None:
            parts.append(certificate.described(self._now()))
        return "; ".join(parts)

    async def _why_not_encrypted(self, error: Exception, detail: str) -> Diagnosis:
        peer, certificate = Peer.UNKNOWN, None
        host, timeout = self.target.host, self._timeout
        if isinstance(error, ssl.SSLCertVerificationError):
            _, certificate = await unverified_certificate(self._addresses[0], host, timeout)
        else:
            peer = await identify(self._addresses[0], host, self._context, timeout)
        return causes.tls_failed(
            self.target,
            self._security,
            error,
            peer=peer,
            certificate=certificate,
            now=self._now(),
            detail=detail,
        )

    # Kafka

    async def _negotiate(self) -> str:
        wire = self._wire or await self._speak()
        versions = await wire.negotiate()
        release, count = release_of(versions.ranges), len(versions.ranges)
        return f"Apache Kafka {release}, to judge by the versions of its {count} APIs"

    async def _why_no_versions(self, error: Exception, detail: str) -> Diagnosis:
        address, host = self._addresses[0], self.target.host
        if self._context is not None and not isinstance(error, TimeoutError):
            alert = await late_alert(address, self._context, host, self._timeout)
            if alert is not None:
                return await self._why_not_encrypted(alert, text_of(alert, self._timeout))
        peer = await identify(address, host, self._context, self._timeout)
        return causes.no_versions(self.target, self._security, error, peer=peer, detail=detail)

    async def _log_in(self) -> str:
        assert self._login is not None
        try:
            async with asyncio.timeout(self._timeout):
                mechanism = await self._login.mechanism(self.target.host)
        except (AuthenticationFailed, TimeoutError) as error:
            detail = text_of(error, self._timeout)
            raise Diagnosed(causes.no_credentials(error, detail)) from error
        async with asyncio.timeout(self._timeout):
            lifetime = await authenticate(mechanism, self._ask, self.target.address)
        text = f"logged in by {mechanism.name}; the listener offers {', '.join(self._offered)}"
        return f"{text}; sessions last {lifetime:g} s" if lifetime else text

    async def _ask(self, request: Request) -> Response:
        assert self._wire is not None
        response = await self._wire.ask(request)
        if isinstance(response, SaslHandshakeResponse):
            self._offered = response.mechanisms
        return response

    async def _why_not_logged_in(self, error: Exception, detail: str) -> Diagnosis:
        return causes.login_failed(
            self.target, self._security, error, offered=self._offered, detail=detail
        )

    async def _describe(self) -> str:
        response = cast("MetadataResponse", await self._ask(MetadataRequest([])))
        if response.error_code:
            raise broker_error(response.error_code, "Metadata")
        found = sorted(response.brokers, key=lambda one: one.node_id)
        if not found:
            raise Diagnosed(causes.no_brokers())
        expected = self.expected_cluster_id
        if expected not in (None, response.cluster_id):
            raise Diagnosed(causes.other_cluster(self.target, response.cluster_id, expected))
        self.cluster_id = response.cluster_id
        if self.target.node_id is not None:
            return f"cluster {self.cluster_id}"
        brokers = [Target(one.host, one.port, one.node_id) for one in found]
        by_address = {one.address: one for one in brokers}
        for one in brokers:
            if (other := by_address[one.address]) is not one:
                raise Diagnosed(causes.shared_address(one, other))
        self.brokers = brokers
        listed = some_of([f"{one.node_id} at {one.address}" for one in self.brokers], _SHOWN)
        controller = "none" if response.controller_id < 0 else response.controller_id
        return (
            f"cluster {self.cluster_id}, controller {controller}, {len(found)} "
            f"broker{'s'[: len(found) != 1]}: {listed}"
        )

    async def _why_no_metadata(self, error: Exception, detail: str) -> Diagnosis:
        if self._login is None and isinstance(error, (OSError, EOFError)):
            address, host = self._addresses[0], self.target.host
            try:
                async with further_wire(address, self._context, host, self._timeout) as wire:
                    await wire.negotiate()
                    await check_without_sasl(wire.ask, self.target.address)
            except AuthenticationFailed as refusal:
                return causes.sasl_missing(self._security, f"{detail}; {refusal.message}")
            except FAILURES:
                pass  # the first error says more
        return causes.request_failed(error, detail)

    # Parts

    async def _speak(self) -> Wire:
        """Make the open socket a wire, which owns it then."""
        sock, self._socket = self._socket, None
        assert sock is not None
        self._wire = await wire_over(sock, self._context, self.target.host, self._client_id)
        return self._wire

    def _now(self) -> float:
        return self._clock.wall_ms() / 1000
