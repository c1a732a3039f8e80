"""The facts of a certificate, verified or not. Sans-IO.

The ``ssl`` module decodes a certificate only if it was verified; others need ``kclient[tls]``.
"""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kclient.errors import some_of

_DAY = 86_400.0
_SHOWN_NAMES = 6


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a broker says it is.

    Attributes:
        subject: Its owner, as in ``CN=broker``.
        names: Host names and addresses that it is for.
        issuer: The authority that signed it.
        not_before: Seconds since the epoch from which it is valid.
        not_after: Seconds since the epoch until which it is valid.
    """

    subject: str
    names: tuple[str, ...]
    issuer: str
    not_before: float
    not_after: float

    @property
    def listed_names(self) -> str:
        """The names, or the first of them."""
        return some_of(self.names, _SHOWN_NAMES) or "no host name"

    def described(self, now: float) -> str:
        """All of it, with the days that are left at ``now``."""
        text = (
            f"certificate of {self.subject} for {self.listed_names}, issued by {self.issuer}, "
            f"valid {date_of(self.not_before)} to {date_of(self.not_after)}"
        )
        if self.not_before <= now < self.not_after:
            text += f" ({(self.not_after - now) / _DAY:.0f} days left)"
        return text


def date_of(seconds: float) -> str:
    """Seconds since the epoch as date and time in UTC."""
    return f"{datetime.datetime.fromtimestamp(seconds, datetime.UTC):%Y-%m-%d %H:%M} UTC"


def certificate_of(der: bytes | None, decoded: Mapping[str, Any] | None) -> Certificate | None:
    """Read a certificate; None if there is none, or no way to read it.

    Args:
        der: Its bytes.
        decoded: What ``getpeercert()`` gives, for want of ``kclient[tls]``; empty unless it was
            verified.
    """
    if der is None:
        return None
    try:
        from cryptography import x509
    except ImportError:
        return _of_decoded(decoded) if decoded else None
    try:
        found = x509.load_der_x509_certificate(der)
        try:
            names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            listed: tuple[str, ...] = ()
        else:
            hosts = names.get_values_for_type(x509.DNSName)
            listed = (*hosts, *map(str, names.get_values_for_type(x509.IPAddress)))
        return Certificate(
            found.subject.rfc4514_string(),
            listed,
            found.issuer.rfc4514_string(),
            found.not_valid_before_utc.timestamp(),
            found.not_valid_after_utc.timestamp(),
        )
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return None  # not what a certificate should be


_SHORT = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
}


def _of_decoded(decoded: Mapping[str, Any]) -> Certificate:
    def name(parts: Any) -> str:  # the last part first, as RFC 4514 has it
        pairs = [pair for part in parts for pair in part]
        return ",".join(f"{_SHORT.get(key, key)}={value}" for key, value in reversed(pairs))

    return Certificate(
        name(decoded.get("subject", ())),
        tuple(value for _, value in decoded.get("subjectAltName", ())),
        name(decoded.get("issuer", ())),
        ssl.cert_time_to_seconds(decoded["notBefore"]),
        ssl.cert_time_to_seconds(decoded["notAfter"]),
    )
