"""Certificates for brokers on loopback and for clients, by an authority made in memory."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from typing import TYPE_CHECKING, Any

from kclient.errors import InvalidConfig
from kclient.secret import Secret
from kclient.tls import load_chain

if TYPE_CHECKING:
    from asyncio import BaseTransport
    from collections.abc import Mapping

    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, ExtensionType, KeyUsage

_LIFETIME = datetime.timedelta(days=30)
_EARLIER = datetime.timedelta(days=1)
_AUTHORITY = "kclient.testing"
_ADDRESSES = ("127.0.0.1", "::1")


class ServerCertificate:
    """An authority, and a certificate for ``localhost``, 127.0.0.1 and ::1 that it has signed.

    Args:
        wants_clients: Clients must have a certificate of the authority, too.

    Attributes:
        authority: The authority's certificate as PEM.
        context: For servers.

    Raises:
        InvalidConfig: ``kclient[tls]`` isn't installed.
    """

    def __init__(self, *, wants_clients: bool) -> None:
        try:
            from cryptography import x509
            from cryptography.hazmat.primitives.asymmetric import ec
            from cryptography.hazmat.primitives.serialization import Encoding
        except ImportError as error:
            raise InvalidConfig(
                "tls=True needs a package more: pip install 'kclient[tls]'"
            ) from error
        root_key = ec.generate_private_key(ec.SECP256R1())
        root = _signed(
            _AUTHORITY,
            root_key,
            root_key,
            x509.BasicConstraints(ca=True, path_length=0),
            _usage_of_an_authority(),
            x509.SubjectKeyIdentifier.from_public_key(root_key.public_key()),
        )
        self._root_key = root_key
        self.authority = root.public_bytes(Encoding.PEM).decode()
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        if wants_clients:
            self.context.load_verify_locations(cadata=self.authority)
            self.context.verify_mode = ssl.CERT_REQUIRED
        self.renew()

    def renew(self) -> None:
        """Sign another certificate, of another key, which connections from now on get."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import Encoding

        key = ec.generate_private_key(ec.SECP256R1())
        own = _signed(
            "broker",
            key,
            self._root_key,
            x509.SubjectAlternativeName(
                [
                    x509.DNSName("localhost"),
                    *(x509.IPAddress(ipaddress.ip_address(one)) for one in _ADDRESSES),
                ]
            ),
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._root_key.public_key()),
        )
        load_chain(self.context, own.public_bytes(Encoding.PEM).decode(), key)

    def of_client(self, name: str) -> tuple[str, Secret]:
        """A certificate for a client, whose common name is ``name``, and its key, both as PEM."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
        )

        key = ec.generate_private_key(ec.SECP256R1())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._root_key.public_key())
        signed = _signed(name, key, self._root_key, issuer)
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        return signed.public_bytes(Encoding.PEM).decode(), Secret(text)


def common_name(transport: BaseTransport) -> str | None:
    """The common name in the certificate of a connection's client; None without one."""
    certificate: Mapping[str, Any] | None = transport.get_extra_info("peercert")
    for ((key, value),) in (certificate or {}).get("subject", ()):
        if key == "commonName":
            return str(value)
    return None


def _signed(
    subject: str,
    key: EllipticCurvePrivateKey,
    root_key: EllipticCurvePrivateKey,
    *extensions: ExtensionType,
) -> Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name(subject))
        .issuer_name(name(_AUTHORITY))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + _LIFETIME)
    )
    for one in extensions:
        critical = isinstance(one, x509.BasicConstraints | x509.KeyUsage)
        builder = builder.add_extension(one, critical=critical)
    return builder.sign(root_key, hashes.SHA256())


def _usage_of_an_authority() -> KeyUsage:
    from cryptography.x509 import KeyUsage

    return KeyUsage(
        key_cert_sign=True,
        crl_sign=True,
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
