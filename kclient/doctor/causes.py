"""From the error of a step to its cause, and to what should be changed. Sans-IO.

One function per step. Some errors have several causes, among which ``Peer`` decides: further
connections to the address have found it.
"""

from __future__ import annotations

import dataclasses
import enum
import errno
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kclient.doctor.certificate import date_of
from kclient.doctor.findings import Cause, Diagnosis
from kclient.error_codes import ErrorCode
from kclient.errors import (
    AuthenticationFailed,
    BrokerError,
    KafkaError,
    NoCommonVersion,
    ProtocolError,
)
from kclient.network.dialer import NO_TLS, reason_of

if TYPE_CHECKING:
    from kclient.doctor.certificate import Certificate
    from kclient.doctor.findings import Target
    from kclient.security import Security


class Peer(enum.Enum):
    """What listens at an address."""

    KAFKA = "A Kafka broker, without TLS."
    TLS = "Something that speaks TLS."
    HTTP = "An HTTP server, over TLS if the client uses TLS."
    UNKNOWN = "None of these."


_CLOSED = (EOFError, ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""Errors of a connection that the peer ended; some ConnectionErrors are others."""
_OF_ANOTHER_LISTENER = {
    *(Cause.TLS_LISTENER, Cause.PLAINTEXT_LISTENER),
    *(Cause.SASL_MISSING, Cause.SASL_UNWANTED, Cause.MECHANISM),
}
_NO_ROUTE = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
# OpenSSL's numbers of what is wrong with a certificate (X509_V_ERR_...).
_NOT_YET_VALID, _EXPIRED = 9, 10
_UNTRUSTED = {2, 18, 19, 20, 21, 27}
_OTHER_NAME = {62, 64}
_NO_TLS = NO_TLS | {"PACKET_LENGTH_TOO_LONG"}


def text_of(error: Exception, timeout: float) -> str:
    """What went wrong, in the words of the system, of OpenSSL or of a KafkaError."""
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout:g} s"
    if isinstance(error, _CLOSED) and not isinstance(error, ConnectionRefusedError | KafkaError):
        return "the peer closed the connection"
    return (isinstance(error, KafkaError) and error.message) or reason_of(error)


def unresolved(target: Target, detail: str) -> Diagnosis:
    """The host name has no address."""
    if target.node_id is not None:
        return _bad_advertisement(target, f"{target.host} can't be resolved: {detail}")
    return Diagnosis(
        Cause.UNRESOLVED,
        f"{target.host}: {detail}",
        f"check the name in {target.setting}, or make it known here by DNS or the hosts file",
    )


def not_connected(target: Target, errors: Sequence[Exception], detail: str) -> Diagnosis:
    """No address of the host can be connected to; ``errors`` has one for each of them."""
    if target.node_id is not None:
        return _bad_advertisement(target, detail)
    if any(isinstance(error, ConnectionRefusedError) for error in errors):
        return Diagnosis(
            Cause.REFUSED,
            detail,
            f"start the broker, or correct the port in {target.setting}; a broker that listens on "
            "another interface only needs that one in its listeners",
        )
    if any(isinstance(error, TimeoutError) for error in errors):
        return Diagnosis(
            Cause.NO_ANSWER,
            detail,
            "a firewall or security group may drop what is sent there, or the host is down: open "
            f"port {target.port} for this machine, or correct the address in {target.setting}",
        )
    if any(isinstance(error, OSError) and error.errno in _NO_ROUTE for error in errors):
        return Diagnosis(
            Cause.NO_ROUTE,
            detail,
            "check the network and the VPN of this machine, and that the name has an address "
            "(IPv4 or IPv6) that this machine can route to",
        )
    return Diagnosis(Cause.NO_ROUTE, detail, "check whether this machine may connect there")


def _bad_advertisement(target: Target, detail: str) -> Diagnosis:
    advice = (
        f"clients are to connect to {target.address}: set {target.setting} to a name and port "
        "that lead to it from here"
    )
    if target.is_loopback:
        advice += "; a loopback address means this machine, wherever the broker runs"
    elif "." not in target.host and ":" not in target.host:
        advice += (
            "; a name without dots is often known to containers only: give the broker one more "
            "listener for clients outside, with an address of its own"
        )
    else:
        advice += ", or let this machine reach it (firewall, VPN, is the broker up?)"
    return Diagnosis(Cause.ADVERTISED, detail, advice)


def tls_failed(
    target: Target,
    security: Security,
    error: Exception,
    *,
    peer: Peer,
    certificate: Certificate | None,
    now: float,
    detail: str,
) -> Diagnosis:
    """The handshake of TLS failed, or TLS ended later."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if certificate is not None:
            detail += f"; {certificate.described(now)}"
        return _certificate_refused(target, error.verify_code, certificate, now, detail)
    if peer is Peer.KAFKA:
        plain = "SASL_PLAINTEXT" if security.sasl is not None else "PLAINTEXT"
        return Diagnosis(
            Cause.PLAINTEXT_LISTENER,
            f"{detail}; without TLS a Kafka broker answers there",
            f"use the port of the broker's {security.protocol} listener; if all may be sent "
            f"unencrypted: security.protocol={plain}",
        )
    if peer is Peer.HTTP:
        return _not_kafka(target, detail, "an HTTP server answers there")
    reason = error.reason or "" if isinstance(error, ssl.SSLError) else ""
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        return Diagnosis(
            Cause.CLIENT_CERTIFICATE,
            detail,
            "give the client a certificate of an authority that the broker trusts: "
            "ssl.keystore.location, or Security.tls(certificate_file=...); in the broker this is "
            "ssl.client.auth and ssl.truststore.location",
        )
    if reason in _NO_TLS:
        return _not_kafka(target, detail, "what answers is neither TLS nor Kafka")
    if isinstance(error, ssl.SSLError) and not isinstance(error, _CLOSED):
        return Diagnosis(
            Cause.TLS_FAILED,
            detail,
            "client and broker must share a version and a cipher: TLS 1.2 is the least here; check "
            "ssl.enabled.protocols and ssl.cipher.suites of both, and whether the listener wants a "
            "certificate of the client",
        )
    return _no_answer(target, error, detail)


def _certificate_refused(
    target: Target, code: int, certificate: Certificate | None, now: float, detail: str
) -> Diagnosis:
    if code in (_EXPIRED, _NOT_YET_VALID):
        return _out_of_time(code, certificate, now, detail)
    if code in _OTHER_NAME:
        names = certificate.listed_names if certificate else "those of the certificate"
        return Diagnosis(
            Cause.WRONG_NAME,
            detail,
            f"name the broker by {names} in {target.setting}, or have its certificate issued with "
            f"{target.host} as a subjectAltName (a common name isn't enough)",
        )
    if code in _UNTRUSTED:
        issuer = "its authority"
        if certificate is not None:
            self_signed = certificate.issuer == certificate.subject
            issuer = "this very certificate" if self_signed else certificate.issuer
        return Diagnosis(
            Cause.UNKNOWN_AUTHORITY,
            detail,
            f"have the client trust {issuer}: ssl.truststore.location or ssl.ca.location, or "
            "Security.tls(ca_file=...); or the broker's keystore lacks intermediate certificates",
        )
    return Diagnosis(Cause.CERTIFICATE, detail, "have the broker's certificate issued anew")


def _out_of_time(code: int, certificate: Certificate | None, now: float, detail: str) -> Diagnosis:
    clock = f"; this machine's clock has {date_of(now)}"
    whose = "the broker's certificate"
    if certificate is not None and certificate.not_before <= now < certificate.not_after:
        whose = "the certificate of an authority in its chain"  # its own is in time
    if code == _EXPIRED:
        advice = f"renew {whose} (ssl.keystore.location of the broker)"
        return Diagnosis(Cause.EXPIRED, detail + clock, f"{advice}, if that clock is right")
    return Diagnosis(
        Cause.NOT_YET_VALID,
        detail + clock,
        f"set the clock of this machine if it is wrong; else {whose} was issued for later",
    )


def no_versions(
    target: Target, security: Security, error: Exception, *, peer: Peer, detail: str
) -> Diagnosis:
    """ApiVersions had no answer that can be used."""
    if peer is Peer.TLS and security.tls_context is None:
        tls = "SASL_SSL" if security.sasl is not None else "SSL"
        return Diagnosis(
            Cause.TLS_LISTENER,
            f"{detail}; it answers to TLS",
            f"set security.protocol={tls}, or Security.tls(...); or use the port of the broker's "
            f"{security.protocol} listener",
        )
    if peer is Peer.HTTP:
        return _not_kafka(target, detail, "an HTTP server answers there")
    if isinstance(error, ProtocolError):
        return _not_kafka(target, detail, "the answer is none of Kafka's")
    if isinstance(error, KafkaError):
        return Diagnosis(
            Cause.UNSUPPORTED, detail, "upgrade the broker: 1.0 is the oldest that can be used"
        )
    return _no_answer(target, error, detail)


def _not_kafka(target: Target, detail: str, seen: str) -> Diagnosis:
    return Diagnosis(
        Cause.NOT_KAFKA,
        f"{detail}; {seen}" if detail else seen,
        f"correct host and port in {target.setting}: a client wants a broker's listener, not a web "
        "console, REST proxy, schema registry or ZooKeeper",
    )


def _no_answer(target: Target, error: Exception, detail: str) -> Diagnosis:
    if isinstance(error, TimeoutError):
        return Diagnosis(
            Cause.SILENT,
            detail,
            "a firewall, proxy or load balancer may accept in the broker's place, or the broker "
            f"hangs; or it isn't Kafka: check the port in {target.setting}, and the broker's log",
        )
    return Diagnosis(
        Cause.HUNG_UP,
        detail,
        "a proxy or load balancer without a broker behind it does that, a broker that starts or "
        "stops or is at its max.connections, a TLS listener that wants a certificate of the "
        f"client, and what isn't Kafka: check the port in {target.setting}, and the broker's log",
    )


def login_failed(
    target: Target, security: Security, error: Exception, *, offered: Sequence[str], detail: str
) -> Diagnosis:
    """SASL failed after its first request was written."""
    refusal = error.__cause__
    code = refusal.code if isinstance(refusal, BrokerError) else ErrorCode.NONE
    if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        listed = ", ".join(offered) or "none"
        return Diagnosis(
            Cause.MECHANISM,
            detail,
            f"set sasl.mechanism to one that the listener offers ({listed}), or add "
            f"{_mechanism(security)} to the broker's sasl.enabled.mechanisms",
        )
    if code == ErrorCode.ILLEGAL_SASL_STATE:
        plain = security.protocol.removeprefix("SASL_")
        return Diagnosis(
            Cause.SASL_UNWANTED,
            detail,
            f"set security.protocol={plain} and leave out sasl.*, or use the port of the broker's "
            f"{security.protocol} listener",
        )
    mechanism = _mechanism(security)
    if mechanism == "OAUTHBEARER" and isinstance(error, AuthenticationFailed):
        return Diagnosis(
            Cause.TOKEN,
            detail,
            "check the token's issuer, audience, scope and expiry against what the broker "
            "expects, and the clocks of both machines",
        )
    if mechanism != "GSSAPI" and code == ErrorCode.SASL_AUTHENTICATION_FAILED:
        return Diagnosis(
            Cause.PASSWORD,
            detail,
            "check user and password (sasl.jaas.config, or sasl.username and sasl.password), and "
            f"that the broker has this user for {mechanism}",
        )
    return Diagnosis(
        Cause.LOGIN_FAILED,
        detail,
        _hint_of(error) or "see the broker's log; is it a broker of yours?",
    )


def no_credentials(error: Exception, detail: str) -> Diagnosis:
    """There is nothing to log in with."""
    advice = "check what gives them: a function of yours, the token's server, or the KDC"
    return Diagnosis(Cause.NO_CREDENTIALS, detail, _hint_of(error) or advice)


def sasl_missing(security: Security, detail: str) -> Diagnosis:
    """The broker closed the connection of a client that didn't log in, as it wants SASL."""
    return Diagnosis(
        Cause.SASL_MISSING,
        detail,
        f"set security.protocol=SASL_{security.protocol}, and sasl.mechanism and sasl.jaas.config "
        "for one of these mechanisms; or use a listener without SASL",
    )


def request_failed(error: Exception, detail: str) -> Diagnosis:
    """The broker was asked for the cluster in vain."""
    if isinstance(error, NoCommonVersion):
        return Diagnosis(Cause.UNSUPPORTED, detail, error.hint or "upgrade the broker")
    return Diagnosis(
        Cause.REQUEST_FAILED,
        detail,
        "see the broker's log: it may be starting, stopping or overloaded",
    )


def for_target(target: Target, found: Diagnosis) -> Diagnosis:
    """``found``, with advice for an advertised address: the settings fit the bootstrap address."""
    if target.node_id is None or found.cause not in _OF_ANOTHER_LISTENER:
        return found
    advice = (
        f"the bootstrap address works with these settings: set {target.setting} to an address of "
        "the same listener, with the same security in listener.security.protocol.map"
    )
    return dataclasses.replace(found, advice=advice)


def no_brokers() -> Diagnosis:
    """The response of Metadata has no brokers."""
    return Diagnosis(
        Cause.NO_BROKERS,
        "the response has no brokers",
        "the broker may be starting or fenced: see the controller's log, or try again",
    )


def shared_address(target: Target, other: Target) -> Diagnosis:
    """Two brokers advertise one address."""
    return Diagnosis(
        Cause.ADVERTISED,
        f"brokers {target.node_id} and {other.node_id} both advertise {target.address}",
        f"set {target.setting} to an address of its own: clients connect to each broker",
    )


def other_cluster(target: Target, found: str | None, expected: str | None) -> Diagnosis:
    """The address leads to another cluster than the first that answered."""
    if target.node_id is None:
        advice = f"have addresses of one cluster only in {target.setting}"
    else:
        advice = f"set {target.setting} to an address that leads to this very broker from here"
    detail = f"cluster {found} answers; the first bootstrap address is of cluster {expected}"
    return Diagnosis(Cause.OTHER_CLUSTER, detail, advice)


def _mechanism(security: Security) -> str:
    return security.sasl.mechanism if security.sasl is not None else ""


def _hint_of(error: Exception) -> str | None:
    return error.hint if isinstance(error, KafkaError) else None
