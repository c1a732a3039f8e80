"""``security.protocol`` and ``ssl.*`` of properties files, made a ``Security``.

``properties`` calls it. PEM only, in files or in the values themselves. What would make the
connection less secure than the file says, or can't be honoured, is refused.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Mapping
from typing import NoReturn

from kclient.errors import InvalidConfig
from kclient.foreign_settings import normalised
from kclient.security import Security

_NO_SASL = "SASL is not in this release"
_OF_JAVA = {
    *("ssl_keymanager_algorithm", "ssl_keystore_password", "ssl_protocol", "ssl_provider"),
    *("ssl_secure_random_implementation", "ssl_trustmanager_algorithm", "ssl_truststore_password"),
}
"""What has no meaning for PEM and Python's ssl module, and weakens nothing."""
_CA_FILES = ("ssl_ca_location", "ssl_truststore_location")
_CA_TEXTS = ("ssl_truststore_certificates", "ssl_ca_pem")
_CHAIN_FILES = ("ssl_certificate_location", "ssl_keystore_location")
_CHAIN_TEXTS = ("ssl_keystore_certificate_chain", "ssl_certificate_pem")
_KEY_FILES = ("ssl_key_location",)
_KEY_TEXTS = ("ssl_keystore_key", "ssl_key_pem")
_STORES = {
    "ssl_keystore_type": ("ssl_keystore_location", *_CHAIN_TEXTS[:1], *_KEY_TEXTS[:1]),
    "ssl_truststore_type": ("ssl_truststore_location", *_CA_TEXTS[:1]),
}
"""The type of a store, and what it is the type of."""
_CHECKED = {
    *("security_protocol", "enable_ssl_certificate_verification", "ssl_enabled_protocols"),
    *("ssl_endpoint_identification_algorithm", "ssl_key_password", *_STORES),
    *(*_CA_FILES, *_CA_TEXTS, *_CHAIN_FILES, *_CHAIN_TEXTS, *_KEY_FILES, *_KEY_TEXTS),
}


def is_of_security(key: str) -> bool:
    """Whether a name, in the form of ``foreign_settings.normalised``, is dealt with here."""
    return key in _CHECKED or key.startswith(
        ("ssl_", "sasl_", "enable_sasl_", "https_ca_", "security_protocol")
    )


def security_from(given: Mapping[str, str], unused: dict[str, str]) -> Security | None:
    """Return the security that the properties ask for; None if they don't say.

    Args:
        given: The properties of which ``is_of_security`` is true.
        unused: Gets the names of those without meaning, and why.

    Raises:
        InvalidConfig: It can't be honoured, or a file can't be used.
    """
    values = {normalised(name): value for name, value in given.items()}
    protocol = values.get("security_protocol", "").upper()
    if protocol.startswith("SASL_"):
        _refuse("security.protocol", protocol, _NO_SASL)
    for name in given:
        if not normalised(name).startswith(("ssl_", "security_", "enable_ssl_")):
            raise InvalidConfig(f"{name} can't be used: {_NO_SASL}")
    if protocol not in ("", "PLAINTEXT", "SSL"):
        _refuse("security.protocol", protocol, "allowed are PLAINTEXT and SSL")
    _check_verification(values)
    others = [name for name in given if normalised(name) != "security_protocol"]
    if protocol == "SSL":
        return _tls(given, values, unused)
    if not protocol and any(values[normalised(name)] for name in others):
        raise InvalidConfig(
            f"security.protocol is missing beside {', '.join(sorted(others))}",
            hint="security.protocol=SSL uses them; PLAINTEXT encrypts nothing",
        )
    unused |= dict.fromkeys(others, "security.protocol is PLAINTEXT")
    return Security.plaintext() if protocol else None


def _refuse(name: str, value: str, why: str) -> NoReturn:
    raise InvalidConfig(f"{name}={value} can't be used: {why}")


def _check_verification(values: Mapping[str, str]) -> None:
    how = values.get("ssl_endpoint_identification_algorithm", "https")
    if how.lower() != "https":
        _refuse(
            "ssl.endpoint.identification.algorithm",
            repr(how),
            "host names are always verified; allowed is https",
        )
    verify = values.get("enable_ssl_certificate_verification", "true")
    if verify.lower() != "true":
        _refuse(
            "enable.ssl.certificate.verification",
            repr(verify),
            "certificates are always verified; allowed is true",
        )


def _tls(given: Mapping[str, str], values: dict[str, str], unused: dict[str, str]) -> Security:
    for name in given:
        key = normalised(name)
        if key in _OF_JAVA:
            unused[name] = "TLS is Python's ssl module, with PEM"
        elif key not in _CHECKED and values[key]:
            raise InvalidConfig(
                f"{name} can't be honoured",
                hint="leave out all ssl.*, and give security=Security.tls(ssl_context=...)",
            )
    for kind, parts in _STORES.items():
        if any(values.get(part) for part in parts) and values.get(kind, "JKS").upper() != "PEM":
            raise InvalidConfig(
                f"{kind.replace('_', '.')}={values.get(kind, 'JKS')} can't be read: allowed is PEM",
                hint="keytool and `openssl pkcs12 -in store.p12 -out store.pem` convert stores",
            )
    with tempfile.TemporaryDirectory(prefix="kclient-") as folder:  # for its owner only
        try:
            security = Security.tls(
                ca_file=_file(values, _CA_FILES, _CA_TEXTS, folder),
                certificate_file=_file(values, _CHAIN_FILES, _CHAIN_TEXTS, folder),
                key_file=_file(values, _KEY_FILES, _KEY_TEXTS, folder),
                key_password=values.get("ssl_key_password") or None,
            )
        except InvalidConfig as error:
            raise InvalidConfig(f"ssl.* can't be used: {error.message}") from error.__cause__
    if values.get("ssl_enabled_protocols"):
        _limit_versions(security, values["ssl_enabled_protocols"])
    return security


def _file(
    values: Mapping[str, str], files: tuple[str, ...], texts: tuple[str, ...], folder: str
) -> str | None:
    """The path of a PEM file; what is in a value itself is written to ``folder``."""
    for key in files:
        if values.get(key) and not (key == "ssl_ca_location" and values[key] == "probe"):
            return values[key]
    for key in texts:
        if values.get(key):
            path = os.path.join(folder, key.replace("_", "."))
            with open(path, "w", encoding="utf-8") as file:
                file.write(values[key])
            return path
    return None


def _limit_versions(security: Security, said: str) -> None:
    """Speak no version of TLS that isn't listed."""
    versions = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
    listed = {part.strip() for part in said.split(",")}
    wanted = [version for name, version in versions.items() if name in listed]
    if not wanted:
        _refuse("ssl.enabled.protocols", said, "allowed are TLSv1.2 and TLSv1.3")
    assert security.ssl_context is not None
    security.ssl_context.minimum_version = wanted[0]
    security.ssl_context.maximum_version = wanted[-1]
