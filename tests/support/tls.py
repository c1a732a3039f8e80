"""The TLS identity of the test brokers: one key and certificate for localhost, made by keytool.

`tests.support.kafka` gives the key store to the broker, and TLS tests give `certificate()` to an
`ssl.SSLContext` as the authority to trust: the certificate is its own authority.
"""

from __future__ import annotations

import fcntl
from pathlib import Path

from tests.support.class_path import cache_directory, require
from tests.support.programs import output_of

KEYSTORE_PASSWORD = "kclient-tests"
"""Of a throw-away key for the loopback interface: not a secret."""

_ALIAS = "broker"
_VALID_DAYS = "3650"


def certificate() -> Path:
    """Return the PEM file that clients trust, made on first use."""
    keystore()
    return cache_directory() / "tls" / "broker.pem"


def keystore() -> Path:
    """Return the PKCS12 file with the key of the brokers, made on first use."""
    directory = cache_directory() / "tls"
    store, pem = directory / "broker.p12", directory / "broker.pem"
    if store.exists() and pem.exists():
        return store
    directory.mkdir(parents=True, exist_ok=True)
    store.unlink(missing_ok=True)
    _keytool(
        [
            *("-genkeypair", "-keyalg", "RSA", "-keysize", "2048", "-validity", _VALID_DAYS),
            *("-dname", "CN=localhost", "-ext", "san=dns:localhost,ip:127.0.0.1"),
            *("-ext", "bc:c", "-keypass", KEYSTORE_PASSWORD),
        ],
        store,
    )
    _keytool(["-exportcert", "-rfc", "-file", str(pem)], store)
    return store


def client_authority() -> Path:
    """Return the PEM file of the authority whose clients a secured broker trusts."""
    import trustme  # here, as brokers are started before it is installed

    directory = cache_directory() / "tls"
    certificate, key = directory / "clients.pem", directory / "clients.key"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # jobs with brokers of several releases run at once
        if not (certificate.exists() and key.exists()):
            authority = trustme.CA()
            authority.private_key_pem.write_to_path(str(key))
            authority.cert_pem.write_to_path(str(certificate))
    return certificate


def client_certificate(name: str, directory: Path) -> Path:
    """Write a PEM file with key and certificate of a client whose common name is ``name``."""
    import trustme

    certificate = client_authority()
    authority = trustme.CA.from_pem(
        certificate.read_bytes(), certificate.with_suffix(".key").read_bytes()
    )
    issued = authority.issue_cert(f"{name}@localhost", common_name=name)
    path = directory / f"{name}.pem"
    issued.private_key_and_cert_chain_pem.write_to_path(str(path))
    return path


def _keytool(arguments: list[str], store: Path) -> None:
    command = [require("keytool", "it comes with the JDK"), *arguments, "-alias", _ALIAS]
    command += ["-keystore", str(store), "-storetype", "PKCS12", "-storepass", KEYSTORE_PASSWORD]
    output_of(command, "keytool failed", 60.0)
