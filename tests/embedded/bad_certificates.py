"""Certificates that a client must not trust, and a few unusual ones that it must.

All are for ``HOST`` and issued by one authority unless their name says otherwise, so that each has
one fault only. Used by test_tls_refusals.py, through servers that present them.
"""

from __future__ import annotations

import datetime
import functools
import ipaddress
from collections.abc import Sequence
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

HOST = "kafka.east.example"
ADDRESS = "127.0.0.1"

Names = Sequence[x509.GeneralName]


class Signer:
    """A key with its certificate, which signs others, whether it may or not."""

    def __init__(
        self, key: Any, certificate: x509.Certificate, above: Sequence[Signer] = ()
    ) -> None:
        self.key = key
        self.certificate = certificate
        self.above = above

    @property
    def pem(self) -> bytes:
        """The certificate alone."""
        return self.certificate.public_bytes(Encoding.PEM)

    def presented(self, *, chain: bool = True) -> bytes:
        """Key and certificates as a server's file has them: without the root."""
        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        above = b"".join(one.pem for one in self.above if one.above) if chain else b""
        return key + self.pem + above

    def issue(
        self,
        subject: str = "broker",
        *,
        names: Names | None = None,
        key: Any = None,
        days: tuple[int, int] = (-1, 30),
        usage: ObjectIdentifier | None = None,
        extension: x509.ExtensionType | None = None,
    ) -> Signer:
        """A server's certificate for ``HOST``, or for ``names``."""
        key = key or _leaf_key()
        extensions: list[tuple[x509.ExtensionType, bool]] = []
        if names is None:
            names = [x509.DNSName(HOST)]
        if names:
            extensions.append((x509.SubjectAlternativeName(names), False))
        if usage is not None:
            extensions.append((x509.ExtendedKeyUsage([usage]), False))
        if extension is not None:
            extensions.append((extension, True))
        return Signer(key, self._signed(subject, key, days, extensions), (self, *self.above))

    def authority(
        self,
        subject: str,
        *,
        path_length: int | None = None,
        days: tuple[int, int] = (-1, 30),
        extension: x509.ExtensionType | None = None,
    ) -> Signer:
        """An authority below this one."""
        key = _new_key()
        extensions = _of_an_authority(path_length)
        if extension is not None:
            extensions.append((extension, True))
        return Signer(key, self._signed(subject, key, days, extensions), (self, *self.above))

    def _signed(
        self,
        subject: str,
        key: Any,
        days: tuple[int, int],
        extensions: Sequence[tuple[x509.ExtensionType, bool]],
    ) -> x509.Certificate:
        return _signed(subject, key, days, extensions, self.certificate.subject, self.key)


def root(subject: str = "root") -> Signer:
    """An authority that has signed itself."""
    key = _new_key()
    extensions = _of_an_authority(None)
    return Signer(key, _signed(subject, key, (-30, 60), extensions, _name(subject), key))


def self_signed() -> Signer:
    """A server that has signed its own certificate."""
    key = _leaf_key()
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.SubjectAlternativeName([x509.DNSName(HOST)]), False)
    ]
    return Signer(key, _signed("broker", key, (-1, 30), extensions, _name("broker"), key))


def dns(*names: str) -> Names:
    """Names of hosts."""
    return [x509.DNSName(one) for one in names]


def address(text: str) -> Names:
    """An IP address as a name of its own kind."""
    return [x509.IPAddress(ipaddress.ip_address(text))]


def bad_certificates(trusted: Signer) -> dict[str, tuple[str, bytes]]:
    """By what is wrong: the host that a client connects to, and the server's file."""
    expired = trusted.authority("expired authority", days=(-10, -1))
    endless = trusted.authority("no authorities below", path_length=0)
    elsewhere = trusted.authority(
        "for others only",
        extension=x509.NameConstraints(
            permitted_subtrees=dns("other.example"), excluded_subtrees=None
        ),
    )
    nameless = x509.UnrecognizedExtension(ObjectIdentifier("1.3.6.1.4.1.55555.1"), b"\x05\x00")
    tampered = bytearray(trusted.issue().certificate.public_bytes(Encoding.DER))
    tampered[-1] ^= 1
    signers = {
        "self-signed": self_signed(),
        "unknown authority": root("another").issue(),
        "another authority of the same name": root().issue(),
        "expired": trusted.issue(days=(-10, -1)),
        "not yet valid": trusted.issue(days=(1, 10)),
        "other name": trusted.issue(names=dns("other.example")),
        "part of the name": trusted.issue(names=dns("east.example", "kafka")),
        "wildcard of a level above": trusted.issue(names=dns("*.example")),
        "wildcard of a level below": trusted.issue(names=dns("*.kafka.east.example")),
        "wildcard of a part": trusted.issue(names=dns("kaf*.east.example", "*ka.east.example")),
        "wildcard in the middle": trusted.issue(names=dns("kafka.*.example")),
        "NUL in a name": trusted.issue(names=dns(f"{HOST}\0.other.example")),
        "common name only": trusted.issue(HOST, names=[]),
        "common name beside another name": trusted.issue(HOST, names=dns("other.example")),
        "for clients only": trusted.issue(usage=ExtendedKeyUsageOID.CLIENT_AUTH),
        "for signing code only": trusted.issue(usage=ExtendedKeyUsageOID.CODE_SIGNING),
        "weak key": trusted.issue(key=rsa.generate_private_key(65537, 1024)),
        "issued by a server": trusted.issue("other server").issue(),
        "issued by an expired authority": expired.issue(),
        "path too long": endless.authority("one too many").issue(),
        "name its authority may not sign": elsewhere.issue(),
        "unknown critical extension": trusted.issue(extension=nameless),
        "tampered with": Signer(_leaf_key(), x509.load_der_x509_certificate(bytes(tampered))),
    }
    found = {name: (HOST, signer.presented()) for name, signer in signers.items()}
    missing = trusted.authority("never sent").issue()
    found["intermediate missing"] = HOST, missing.presented(chain=False)
    found["other address"] = ADDRESS, trusted.issue(names=address("10.9.8.7")).presented()
    found["address as a host's name"] = ADDRESS, trusted.issue(names=dns(ADDRESS)).presented()
    return found


def good_certificates(trusted: Signer) -> dict[str, tuple[str, bytes]]:
    """The same for certificates that are in order."""
    below = trusted.authority("intermediate", path_length=0)
    return {
        "all names": (HOST, trusted.issue(names=[*dns(HOST), *address(ADDRESS)]).presented()),
        "trailing dot": (HOST + ".", trusted.issue().presented()),
        "other case": (HOST.title(), trusted.issue().presented()),
        "wildcard": (HOST, trusted.issue(names=dns("*.east.example")).presented()),
        "address": (ADDRESS, trusted.issue(names=address(ADDRESS)).presented()),
        "intermediate": (HOST, below.issue().presented()),
        "for servers": (HOST, trusted.issue(usage=ExtendedKeyUsageOID.SERVER_AUTH).presented()),
    }


def _signed(
    subject: str,
    key: Any,
    days: tuple[int, int],
    extensions: Sequence[tuple[x509.ExtensionType, bool]],
    issuer: x509.Name,
    issuer_key: Any,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    first, last = (now + datetime.timedelta(days=each) for each in days)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(first)
        .not_valid_after(last)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(issuer_key, hashes.SHA256())


def _of_an_authority(path_length: int | None) -> list[tuple[x509.ExtensionType, bool]]:
    usage = dict.fromkeys(
        (
            *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
            *("key_agreement", "encipher_only", "decipher_only"),
        ),
        False,
    )
    return [
        (x509.BasicConstraints(ca=True, path_length=path_length), True),
        (x509.KeyUsage(key_cert_sign=True, crl_sign=True, **usage), True),
    ]


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


_leaf_key = functools.cache(_new_key)
