"""Security values: verified by default; impossible combinations are refused."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from kclient.errors import InvalidConfig
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


def test_impossible_combinations_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="as it is"):
        Security.tls(ssl_context=ssl.create_default_context(), ca_file="x")
    with pytest.raises(InvalidConfig, match="certificate_file"):
        Security.tls(key_file="x")
    with pytest.raises(InvalidConfig, match="missing\\.pem"):
        Security.tls(ca_file=tmp_path / "missing.pem")
