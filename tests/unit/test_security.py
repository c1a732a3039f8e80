"""Security values: verified by default; impossible combinations are refused."""

from __future__ import annotations

import contextlib
import os
import ssl
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from kclient.errors import InvalidConfig
from kclient.secret import Secret
from kclient.security import Security


def test_plaintext_has_no_context() -> None:
    assert Security.plaintext().ssl_context is None


def test_tls_verifies_host_and_chain_and_no_common_names() -> None:
    context = Security.tls().ssl_context
    assert context is not None
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert not context.hostname_checks_common_name
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_a_context_of_the_callers_own_is_used_as_it_is() -> None:
    context = ssl.create_default_context()
    assert Security.tls(ssl_context=context).ssl_context is context


def test_flags_are_true_or_false_and_no_text_that_means_so() -> None:
    with pytest.raises(InvalidConfig, match="unencrypted='no' can't be used"):
        Security.sasl_plain("a", "b", unencrypted="no")  # type: ignore[arg-type]
    with pytest.raises(InvalidConfig, match="insecure_skip_verification='false' can't be used"):
        Security.tls(insecure_skip_verification="false")  # type: ignore[arg-type]


def test_a_misspelt_argument_is_named_with_what_there_is() -> None:
    with pytest.raises(InvalidConfig, match="'cafile' is no argument: for TLS there are ca_file"):
        Security.sasl_plain("a", "b", cafile="x")  # type: ignore[call-arg]


def test_a_protocol_is_no_security() -> None:
    with pytest.raises(InvalidConfig, match="it is made by Security"):
        Security("SASL_SSL")  # type: ignore[arg-type]


def test_impossible_combinations_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="as it is"):
        Security.tls(ssl_context=ssl.create_default_context(), ca_file="x")
    with pytest.raises(InvalidConfig, match="certificate_file"):
        Security.tls(key_file="x")
    with pytest.raises(InvalidConfig, match="missing\\.pem"):
        Security.tls(ca_file=tmp_path / "missing.pem")


class TestFiles:
    """Certificates and keys, in whatever form they are given."""

    def test_a_file_with_names_in_its_comments_is_read(self, tls: Identity) -> None:
        bundle = tls.folder / "bundle.pem"
        bundle.write_bytes("# Főtanúsítvány\n".encode() + tls.authority.read_bytes())
        assert trusted(Security.tls(ca_file=bundle)) == 1
        assert trusted(Security.tls(ca=bundle.read_text())) == 1

    @pytest.mark.parametrize("form", ["pem files", "pem texts", "pkcs12", "one pem", "mixed"])
    def test_an_own_certificate_comes_in_several_forms(self, tls: Identity, form: str) -> None:
        chain, key = tls.chain.read_text(), tls.key.read_text()
        both = tls.folder / "both.pem"
        both.write_text(key + chain)
        given: dict[str, Any] = {
            "pem files": {"certificate_file": tls.chain, "key_file": tls.key},
            "pem texts": {"certificate": chain, "key": Secret(key)},
            "pkcs12": {"certificate_file": tls.store, "key_password": "open"},
            "one pem": {"certificate_file": both},
            "mixed": {"certificate_file": tls.chain, "key": key},
        }[form]
        context = Security.tls(ca_file=tls.authority, **given).ssl_context
        assert context is not None
        assert handshake(context, tls) == "CN=client"

    def test_an_encrypted_key_needs_its_password(self, tls: Identity) -> None:
        given = {"certificate": tls.chain.read_text(), "key": tls.locked.read_text()}
        with pytest.raises(InvalidConfig, match="private key can't be read"):
            Security.tls(**given)  # type: ignore[arg-type]
        assert Security.tls(**given, key_password="open").ssl_context  # type: ignore[arg-type]
        with pytest.raises(InvalidConfig, match="key_password is needed"):
            Security.tls(certificate_file=tls.chain, key_file=tls.locked)

    def test_no_key_reaches_the_disk_unencrypted(
        self, tls: Identity, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        written: list[bytes] = []
        unlink = os.unlink

        def watched(path: Any) -> None:
            written.append(Path(path).read_bytes())
            unlink(path)

        monkeypatch.setattr(os, "unlink", watched)
        monkeypatch.setattr(tempfile, "tempdir", str(tls.folder))
        Security.tls(certificate=tls.chain.read_text(), key=tls.key.read_text())
        Security.tls(certificate_file=tls.store, key_password="open")
        both = Security.tls(certificate=tls.chain.read_text() + tls.key.read_text())
        assert "PRIVATE KEY" not in repr(both.tls_context.settings)  # type: ignore[union-attr]
        assert len(written) == 3
        for content in written:
            assert b"BEGIN ENCRYPTED PRIVATE KEY" in content
            assert b"BEGIN PRIVATE KEY" not in content
        assert not list(tls.folder.glob("kclient-*"))

    def test_authorities_come_from_pkcs12_too(self, tls: Identity) -> None:
        assert trusted(Security.tls(ca_file=tls.trust, ca_password="open")) == 1
        with pytest.raises(InvalidConfig, match="can't be read as PKCS#12"):
            Security.tls(ca_file=tls.trust, ca_password="wrong")

    def test_a_jks_store_is_refused_with_how_to_convert_it(self, tmp_path: Path) -> None:
        store = tmp_path / "store.jks"
        store.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
        with pytest.raises(InvalidConfig, match="JKS") as caught:
            Security.tls(ca_file=store)
        assert "keytool -importkeystore" in str(caught.value)

    def test_changed_files_are_read_for_the_next_connection(
        self, tls: Identity, caplog: pytest.LogCaptureFixture
    ) -> None:
        file = tls.folder / "rotated.pem"
        file.write_bytes(tls.authority.read_bytes())
        security = Security.tls(ca_file=file)
        first = security.ssl_context
        assert security.ssl_context is first
        file.write_bytes(tls.authority.read_bytes() + trustme.CA().cert_pem.bytes())
        second = security.ssl_context
        assert second is not first
        assert trusted(security) == 2
        file.write_text("half of a")
        assert security.ssl_context is second
        assert "certificates from before" in caplog.text

    def test_a_key_in_place_of_a_file_is_refused_without_being_shown(self, tls: Identity) -> None:
        key = tls.key.read_text()
        with pytest.raises(InvalidConfig, match="key_file is PEM text") as caught:
            Security.tls(certificate_file=tls.chain, key_file=key)
        assert key.splitlines()[1] not in str(caught.value)

    def test_a_key_beside_pkcs12_is_refused(self, tls: Identity) -> None:
        with pytest.raises(InvalidConfig, match="leave out key and key_file"):
            Security.tls(certificate_file=tls.store, key_password="open", key_file=tls.key)

    def test_verification_is_off_only_by_a_loud_name(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        context = Security.tls(insecure_skip_verification=True).ssl_context
        assert context is not None
        assert context.verify_mode is ssl.CERT_NONE
        assert "whoever answers is taken for the broker" in caplog.text

    def test_a_host_name_is_skipped_by_a_loud_name_and_the_chain_is_not(
        self, tls: Identity, caplog: pytest.LogCaptureFixture
    ) -> None:
        given: dict[str, Any] = {"ca_file": tls.authority, "insecure_skip_hostname": True}
        own = {"certificate_file": tls.chain, "key_file": tls.key}
        assert handshake(made(**given, **own), tls, "other.example") == "CN=client"
        with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
            handshake(made(ca_file=tls.authority, **own), tls, "other.example")
        other = made(ca=trustme.CA().cert_pem.bytes().decode(), insecure_skip_hostname=True)
        with pytest.raises(ssl.SSLCertVerificationError, match="in certificate chain"):
            handshake(other, tls, "other.example")
        assert "for any host, is taken for the broker" in caplog.text

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"ca": "x", "ca_file": "y"}, "ca_file and ca say the same"),
            ({"certificate": "x", "certificate_file": "y"}, "say the same"),
            ({"key": "x", "key_file": "y", "certificate": "z"}, "say the same"),
            ({"key_password": "x"}, "need certificate_file"),
            ({"ca": ""}, "ca is empty"),
            ({"key_password": Secret("")}, "key_password is empty"),
            ({"certificate": "x"}, "no private key"),
            ({"ca": "no certificate"}, "can't be set up"),
            ({"insecure_skip_verification": True, "ca": "x"}, "trusts anyone"),
        ],
    )
    def test_what_doesnt_fit_is_refused(self, given: Any, words: str) -> None:
        with pytest.raises(InvalidConfig, match=words):
            Security.tls(**given)


class TestSasl:
    def test_tls_is_used_unless_it_is_said_otherwise(self) -> None:
        assert Security.sasl_plain("alice", "x").protocol == "SASL_SSL"
        assert Security.sasl_scram("alice", "x").protocol == "SASL_SSL"
        assert Security.oauth(lambda: "a.b.c").protocol == "SASL_SSL"
        assert Security.sasl_plain("alice", "x", unencrypted=True).protocol == "SASL_PLAINTEXT"

    @pytest.mark.parametrize(
        ("made", "words"),
        [
            (lambda: Security.sasl_plain("alice"), "password is a NoneType"),
            (lambda: Security.sasl_plain("", "x"), "username=''"),
            (lambda: Security.sasl_plain("a\0b", "x"), "without NUL"),
            (lambda: Security.sasl_plain("a", "x\0"), "password is empty or has a NUL"),
            (lambda: Security.sasl_plain("a", ""), "password is empty"),
            (lambda: Security.sasl_plain("a", "b\udcfc"), "aren't Unicode"),
            (lambda: Security.sasl_plain("a\udcfc", "b"), "username="),
            (lambda: Security.sasl_plain("a", credentials=lambda: ("a", "b")), "leave those out"),
            (lambda: Security.sasl_plain(credentials="a:b"), "credentials is a str"),  # type: ignore[arg-type]
            (lambda: Security.sasl_scram("a", "b", mechanism="SHA-1"), "allowed are SCRAM-SHA-256"),  # type: ignore[arg-type]
            (lambda: Security.oauth("token"), "token is a str"),  # type: ignore[arg-type]
            (lambda: Security.oauth(str, unencrypted=True, ca="x"), "leave out ca"),
        ],
    )
    def test_what_cant_work_is_refused(self, made: Callable[[], object], words: str) -> None:
        with pytest.raises(InvalidConfig, match=words):
            made()

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"principal": ""}, "principal='' can't be used"),
            ({"principal": 7}, "principal=7 can't be used"),
            ({"keytab": "a.keytab"}, "needs the principal"),
            ({"principal": "a", "keytab": ""}, "keytab='' can't be used"),
            ({"service_name": "kafka/broker"}, "first part of a broker's principal"),
            ({"service_name": None}, "service_name=None can't be used"),
            ({"unencrypted": True, "ca": "x"}, "leave out ca"),
        ],
    )
    def test_a_ticket_that_cant_be_meant_is_refused(
        self, given: Any, words: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "gssapi", ModuleType("gssapi"))
        with pytest.raises(InvalidConfig, match=words):
            Security.gssapi(**given)

    def test_tickets_need_a_package_more(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "gssapi", None)
        with pytest.raises(InvalidConfig, match="GSSAPI needs a package more") as caught:
            Security.gssapi()
        assert "pip install 'kclient[gssapi]'" in str(caught.value)


@dataclass
class Identity:
    """An authority, and a certificate of a client in all forms."""

    folder: Path
    authority: Path
    chain: Path
    key: Path
    locked: Path
    store: Path
    trust: Path
    server: ssl.SSLContext


@pytest.fixture
def tls(tmp_path: Path) -> Identity:
    authority = trustme.CA()
    own = authority.issue_cert("client", common_name="client")
    served = authority.issue_cert("localhost")
    key = serialization.load_pem_private_key(own.private_key_pem.bytes(), None)
    certificate = x509.load_pem_x509_certificate(own.cert_chain_pems[0].bytes())
    root = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    locked = serialization.BestAvailableEncryption(b"open")
    files = {
        "authority": authority.cert_pem.bytes(),
        "chain": b"".join(one.bytes() for one in own.cert_chain_pems),
        "key": key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        "locked": key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked
        ),
        "store": pkcs12.serialize_key_and_certificates(
            b"client",
            key,  # type: ignore[arg-type]
            certificate,
            [root],
            locked,
        ),
        "trust": pkcs12.serialize_key_and_certificates(b"root", None, None, [root], locked),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.configure_cert(server)
    authority.configure_trust(server)
    server.verify_mode = ssl.CERT_REQUIRED
    return Identity(tmp_path, **{name: tmp_path / name for name in files}, server=server)


def trusted(security: Security) -> int:
    context = security.ssl_context
    assert context is not None
    return len(context.get_ca_certs())


def made(**given: Any) -> ssl.SSLContext:
    context = Security.tls(**given).ssl_context
    assert context is not None
    return context


def handshake(context: ssl.SSLContext, tls: Identity, host: str = "localhost") -> str:
    """Whom the server takes the client for."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server, server_hostname=host)
    server = tls.server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    certificate: Any = server.getpeercert()
    names = dict(pair for part in certificate["subject"] for pair in part)
    return f"CN={names['commonName']}"
