"""The values of an examination: addresses, steps, and the causes that a step can name. Sans-IO."""

from __future__ import annotations

import enum
import ipaddress
from dataclasses import dataclass

from kclient.frozen import Snapshot


class Cause(enum.Enum):
    """What is wrong. ``kclient doctor --json`` has the names, which stay as they are."""

    UNRESOLVED = "the host name can't be resolved"
    REFUSED = "nothing listens on that port"
    NO_ROUTE = "there is no route to that address"
    NO_ANSWER = "no answer to the attempt to connect"
    SILENT = "connections are accepted, but nothing answers"
    HUNG_UP = "connections are accepted, then closed"
    NOT_KAFKA = "what listens there isn't Kafka"
    UNSUPPORTED = "broker and client share no version of the protocol"
    TLS_LISTENER = "the listener speaks TLS, the client doesn't"
    PLAINTEXT_LISTENER = "the client speaks TLS, the listener doesn't"
    UNKNOWN_AUTHORITY = "the client doesn't trust the authority of the broker's certificate"
    EXPIRED = "the broker's certificate has expired"
    NOT_YET_VALID = "the broker's certificate isn't valid yet"
    WRONG_NAME = "the broker's certificate is for other host names"
    CERTIFICATE = "the broker's certificate is refused"
    CLIENT_CERTIFICATE = "the broker doesn't accept the client without a certificate that it trusts"
    TLS_FAILED = "TLS can't be set up"
    SASL_MISSING = "the listener wants SASL, and the client has none"
    SASL_UNWANTED = "the client uses SASL, and the listener has none"
    MECHANISM = "the listener doesn't have the client's SASL mechanism"
    PASSWORD = "the broker refuses the user or the password"
    TOKEN = "the broker refuses the token"
    NO_CREDENTIALS = "the client has no valid credentials to log in with"
    LOGIN_FAILED = "the login failed"
    NO_BROKERS = "the cluster has no brokers"
    ADVERTISED = "the broker advertises an address that doesn't lead to it from here"
    OTHER_CLUSTER = "another cluster answers at that address"
    REQUEST_FAILED = "the broker doesn't serve requests"


@dataclass(frozen=True, slots=True)
class Target:
    """An address to examine.

    Attributes:
        host: Name or address, IPv6 without brackets.
        port: TCP port.
        node_id: The broker that advertises it; None for a bootstrap address.
    """

    host: str
    port: int
    node_id: int | None = None

    @property
    def address(self) -> str:
        """``host:port``, IPv6 in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def setting(self) -> str:
        """The setting that has the address."""
        if self.node_id is None:
            return "bootstrap.servers of the client"
        return f"advertised.listeners of broker {self.node_id}"

    @property
    def is_loopback(self) -> bool:
        """It is this machine, whichever machine that is."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower().rstrip(".") in ("localhost", "localhost.localdomain")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a step failed.

    Attributes:
        cause: What is wrong.
        detail: What was seen.
        advice: What to change, as a sentence.
    """

    cause: Cause
    detail: str
    advice: str


@dataclass(frozen=True, slots=True)
class Step(Snapshot):
    """One step of an examination. Its texts have printable characters only.

    Attributes:
        address: Where.
        broker: The broker that advertises it; None for a bootstrap address.
        name: DNS, TCP, TLS, ApiVersions, SASL or Metadata.
        ok: It succeeded.
        detail: What was seen.
        cause: What is wrong; None if it succeeded.
        advice: What to change; None if it succeeded.
    """

    address: str
    broker: int | None
    name: str
    ok: bool
    detail: str
    cause: Cause | None = None
    advice: str | None = None


def succeeded(target: Target, name: str, detail: str) -> Step:
    """The step that succeeded."""
    return Step(printable(target.address), target.node_id, name, True, printable(detail))


def failed(target: Target, name: str, found: Diagnosis) -> Step:
    """The step that failed."""
    return Step(
        printable(target.address),
        target.node_id,
        name,
        False,
        printable(found.detail),
        found.cause,
        printable(found.advice),
    )


def printable(text: str) -> str:
    """``text`` with escapes for what a terminal would act on: peers can send anything."""
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )
