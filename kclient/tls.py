"""The TLS context of a client: made of PEM or PKCS#12, and made anew when its files change.

``Security`` has one. Common names are no host names, TLS 1.2 is the least, and private keys don't
reach the disk unencrypted: one that is given as text, or comes out of PKCS#12, is encrypted with a
random password for the moment in which OpenSSL reads it from a file.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypedDict

from kclient.errors import InvalidConfig
from kclient.frozen import Frozen, frozen
from kclient.secret import Secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

logger = logging.getLogger("kclient.network")

_PEM = b"-----BEGIN"
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_JKS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_CONVERT = (
    "convert it: keytool -importkeystore -srckeystore STORE.jks -destkeystore STORE.p12 "
    "-deststoretype PKCS12"
)
_NEEDED = "that needs a package more: pip install 'kclient[tls]'"


class TlsOptions(TypedDict, total=False):
    """What ``Security.tls`` takes, and the other class methods for their TLS."""

    ca_file: str | os.PathLike[str] | None
    ca: str | None
    ca_password: str | Secret | None
    certificate_file: str | os.PathLike[str] | None
    certificate: str | None
    key_file: str | os.PathLike[str] | None
    key: str | Secret | None
    key_password: str | Secret | None
    ssl_context: ssl.SSLContext | None
    insecure_skip_hostname: bool
    insecure_skip_verification: bool


@frozen
class TlsSettings(Frozen):
    """Where the parts of a context come from: see ``Security.tls``."""

    ca_file: str | None = None
    ca: str | None = None
    ca_password: Secret | None = None
    certificate_file: str | None = None
    certificate: Secret | None = None
    key_file: str | None = None
    key: Secret | None = None
    key_password: Secret | None = None
    insecure_skip_hostname: bool = False
    insecure_skip_verification: bool = False
    minimum_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    maximum_version: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED

    def __post_init__(self) -> None:
        for name in ("ca_file", "certificate_file", "key_file"):
            if "-----BEGIN" in (getattr(self, name) or ""):
                text = name.removesuffix("_file")
                raise InvalidConfig(f"{name} is PEM text, not the name of a file: give {text}=")
        for file, text in (("ca_file", "ca"), ("certificate_file", "certificate")):
            if getattr(self, file) and getattr(self, text):
                raise InvalidConfig(f"{file} and {text} say the same: give one of them")
        if self.key_file and self.key:
            raise InvalidConfig("key_file and key say the same: give one of them")
        own = self.certificate_file or self.certificate
        if not own and (self.key_file or self.key or self.key_password):
            raise InvalidConfig(
                "key_file, key and key_password need certificate_file or certificate beside them"
            )
        if self.insecure_skip_verification and (self.ca_file or self.ca):
            raise InvalidConfig("insecure_skip_verification trusts anyone: leave out ca_file, ca")

    def files(self) -> list[str]:
        """The files that are read."""
        return [one for one in (self.ca_file, self.certificate_file, self.key_file) if one]


class TlsContext:
    """A context that follows its files.

    Args:
        settings: What it is made of.

    Raises:
        InvalidConfig: A part is missing or unusable.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self.settings = settings
        self._stamps = _stamps(settings.files())
        self._context = _made(settings)
        if settings.insecure_skip_verification:
            logger.warning(
                "insecure_skip_verification is set: whoever answers is taken for the broker"
            )
        elif settings.insecure_skip_hostname:
            logger.warning(
                "insecure_skip_hostname is set: whoever has a certificate of the authorities, for "
                "any host, is taken for the broker"
            )

    def current(self) -> ssl.SSLContext:
        """The context for the next connection; the last one while new files can't be used."""
        stamps = _stamps(self.settings.files())
        if stamps != self._stamps:
            self._stamps = stamps
            try:
                self._context = _made(self.settings)
                logger.info("TLS certificates were read again, as their files have changed")
            except Exception as error:
                logger.warning("TLS goes on with the certificates from before: %s", error)
        return self._context


def _stamps(files: list[str]) -> list[tuple[int, int, int] | None]:
    found: list[tuple[int, int, int] | None] = []
    for file in files:
        try:
            about = os.stat(file)
        except OSError:
            found.append(None)
        else:
            found.append((about.st_mtime_ns, about.st_size, about.st_ino))
    return found


def _made(settings: TlsSettings) -> ssl.SSLContext:
    try:
        file, text = _authorities(settings)
        context = ssl.create_default_context(cafile=file, cadata=text)
        # RFC 6125: a common name is not a host name; Python still falls back to it.
        context.hostname_checks_common_name = False
        context.minimum_version = settings.minimum_version
        context.maximum_version = settings.maximum_version
        if settings.insecure_skip_hostname or settings.insecure_skip_verification:
            context.check_hostname = False
        if settings.insecure_skip_verification:
            context.verify_mode = ssl.CERT_NONE
        _load_own_certificate(context, settings)
    except InvalidConfig:
        raise
    except Exception as error:  # also of OpenSSL and of cryptography
        where = f" from {', '.join(settings.files())}" if settings.files() else ""
        raise InvalidConfig(f"TLS can't be set up{where}: {error}") from error
    return context


def _authorities(settings: TlsSettings) -> tuple[str | None, str | None]:
    """File and text of those to trust, in PEM; neither for the system's."""
    if settings.ca:
        return None, settings.ca.encode("ascii", "ignore").decode()  # without names in comments
    if not settings.ca_file:
        return None, None
    content = _read(settings.ca_file)
    if _PEM in content:
        return settings.ca_file, None
    _, own, others = _opened(content, settings.ca_password, settings.ca_file)
    found = ([own] if own else []) + others
    if not found:
        raise InvalidConfig(f"{settings.ca_file} has no certificate")
    return None, "".join(found)


def _load_own_certificate(context: ssl.SSLContext, settings: TlsSettings) -> None:
    chain = settings.certificate.reveal() if settings.certificate else None
    key = settings.key
    if settings.certificate_file:
        content = _read(settings.certificate_file)
        if _PEM not in content:
            if key is not None or settings.key_file:
                raise InvalidConfig(
                    f"{settings.certificate_file} is PKCS#12, which has the key: leave out key and "
                    "key_file"
                )
            found, own, others = _opened(content, settings.key_password, settings.certificate_file)
            if found is None or own is None:
                raise InvalidConfig(f"{settings.certificate_file} has no private key")
            load_chain(context, own + "".join(others), found)
            return
        if key is None:
            # Without a password OpenSSL would ask for one on the terminal.
            password = settings.key_password.reveal() if settings.key_password else _no_password
            context.load_cert_chain(settings.certificate_file, settings.key_file, password)
            return
        chain = content.decode("utf-8", "replace")
    if chain is None:
        return
    if key is None and settings.key_file:
        key = Secret(_read(settings.key_file).decode("utf-8", "replace"))
    load_chain(context, chain, _key_of((key or Secret(chain)).reveal(), settings.key_password))


def _read(file: str) -> bytes:
    with open(file, "rb") as opened:
        content = opened.read()
    if content.startswith(_JKS):
        raise InvalidConfig(f"{file} is a JKS store: allowed are PEM and PKCS#12", hint=_CONVERT)
    return content


def _opened(
    content: bytes, password: Secret | None, file: str
) -> tuple[PrivateKeyTypes | None, str | None, list[str]]:
    """Key, certificate and further certificates of PKCS#12."""
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, pkcs12
    except ImportError as error:
        raise InvalidConfig(f"{file} is PKCS#12: {_NEEDED}") from error
    try:
        store = pkcs12.load_pkcs12(content, password.reveal().encode() if password else None)
    except ValueError as error:
        raise InvalidConfig(
            f"{file} is no PEM and can't be read as PKCS#12: {error}",
            hint="is its password right (key_password, ca_password)?",
        ) from error
    pem = [one.certificate.public_bytes(Encoding.PEM).decode() for one in store.additional_certs]
    own = store.cert.certificate.public_bytes(Encoding.PEM).decode() if store.cert else None
    return store.key, own, pem


def _key_of(text: str, password: Secret | None) -> PrivateKeyTypes:
    """The private key in a PEM text."""
    try:
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise InvalidConfig(f"a key given as text is encrypted for OpenSSL: {_NEEDED}") from error
    start = text.find("-----BEGIN", 0)
    for part in _pem_parts(text[start:] if start >= 0 else ""):
        if "PRIVATE KEY" in part.partition("\n")[0]:
            try:
                return load_pem_private_key(
                    part.encode(), password.reveal().encode() if password else None
                )
            except (TypeError, ValueError) as error:
                raise InvalidConfig(f"the private key can't be read: {error}") from None
    raise InvalidConfig("there is no private key beside the certificate: give key or key_file")


def _pem_parts(text: str) -> Iterator[str]:
    for part in text.split("-----BEGIN")[1:]:
        yield "-----BEGIN" + part


def load_chain(context: ssl.SSLContext, chain: str, key: PrivateKeyTypes) -> None:
    """Give OpenSSL a chain and a key, which it takes from files only."""
    import secrets
    import tempfile

    from cryptography.hazmat.primitives import serialization as forms

    password = secrets.token_bytes(32).hex().encode()
    encrypted: Any = key.private_bytes(
        forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.BestAvailableEncryption(password)
    )
    handle, path = tempfile.mkstemp(prefix="kclient-")  # for its owner only
    try:
        with os.fdopen(handle, "wb") as file:
            file.write("\n".join(_CERTIFICATE.findall(chain)).encode() + b"\n" + encrypted)
        context.load_cert_chain(path, password=password)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _no_password() -> str:
    raise InvalidConfig("the key is encrypted: key_password is needed")
