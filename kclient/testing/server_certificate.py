"""A certificate for brokers on loopback, by an authority of its own, made in memory."""

from __future__ import annotations

import datetime
import ipaddress
import ssl

from kclient.errors import InvalidConfig
from kclient.tls import load_chain

_LIFETIME = datetime.timedelta(days=30)
_EARLIER = datetime.timedelta(days=1)


class ServerCertificate:
    """An authority, and a certificate for ``localhost``, 127.0.0.1 and ::1 that it has signed.

    Attributes:
        authority: The authority's certificate as PEM.
        context: For servers.

    Raises:
        InvalidConfig: ``kclient[tls]`` isn't installed.
    """

    def __init__(self) -> None:
        try:
            from cryptography import x509
            from cryptography.hazmat.primitives import hashes
            from cryptography.hazmat.primitives.asymmetric import ec
            from cryptography.hazmat.primitives.serialization import Encoding
        except ImportError as error:
            raise InvalidConfig(
                "tls=True needs a package more: pip install 'kclient[tls]'"
            ) from error

        def name(text: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

        def signed(
            subject: str, key: ec.EllipticCurvePrivateKey, *extensions: x509.ExtensionType
        ) -> x509.Certificate:
            now = datetime.datetime.now(datetime.UTC)
            builder = (
                x509.CertificateBuilder()
                .subject_name(name(subject))
                .issuer_name(name("kclient.testing"))
                .public_key(key.public_key())
                .serial_number(x509.random_serial_number())
                .not_valid_before(now - _EARLIER)
                .not_valid_after(now + _LIFETIME)
            )
            for one in extensions:
                builder = builder.add_extension(one, critical=False)
            return builder.sign(root_key, hashes.SHA256())

        root_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        root = signed(
            "kclient.testing",
            root_key,
            x509.BasicConstraints(ca=True, path_length=0),
            x509.SubjectKeyIdentifier.from_public_key(root_key.public_key()),
        )
        hosts = [
            x509.DNSName("localhost"),
            *(x509.IPAddress(ipaddress.ip_address(one)) for one in ("127.0.0.1", "::1")),
        ]
        own = signed(
            "broker",
            key,
            x509.SubjectAlternativeName(hosts),
            x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key()),
        )
        self.authority = root.public_bytes(Encoding.PEM).decode()
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        load_chain(self.context, own.public_bytes(Encoding.PEM).decode(), key)
