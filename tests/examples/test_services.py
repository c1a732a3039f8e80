"""Run what docs/services shows: each block of Python, and each properties file."""

from __future__ import annotations

import datetime
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import trustme

from kclient import AdminConfig
from kclient.properties import parse

FOLDER = Path(__file__).resolve().parent.parent.parent / "docs" / "services"
PAGES = {page.stem: page.read_text(encoding="utf-8") for page in FOLDER.glob("*.md")}


def blocks(kind: str) -> list[Any]:
    """Every block of a kind, with the name of its page."""
    return [
        pytest.param(page, code, id=f"{page}-{count}")
        for page, text in PAGES.items()
        for count, code in enumerate(re.findall(rf"^```{kind}\n(.*?)^```$", text, re.M | re.S))
    ]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory with the files that the pages name."""
    authority = trustme.CA()
    own = authority.issue_cert("client")
    files = {
        "ca.pem": authority.cert_pem.bytes(),
        **dict.fromkeys(("client.pem", "service.cert"), own.cert_chain_pems[0].bytes()),
        **dict.fromkeys(("client.key", "service.key"), own.private_key_pem.bytes()),
        "key.json": b"{}",
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)


class Granted:
    """Credentials of google-auth."""

    token = "opaque"
    expiry = datetime.datetime(2030, 1, 1)
    service_account_email = "app@project.iam.gserviceaccount.com"

    def refresh(self, request: object) -> None: ...


def of_google() -> dict[str, ModuleType]:
    """The modules of google-auth, which isn't installed here, as far as they are used."""
    names = ("google", "google.auth", "google.auth.transport", "google.auth.transport.requests")
    modules = {name: ModuleType(name) for name in names}
    for name, module in modules.items():
        parent, _, own = name.rpartition(".")
        if parent:
            setattr(modules[parent], own, module)
    modules["google.auth"].default = lambda scopes: (Granted(), "project")  # type: ignore[attr-defined]
    modules["google.auth.transport.requests"].Request = object  # type: ignore[attr-defined]
    return modules


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("page", "code"), blocks("python"))
def test_the_code_of_a_page_makes_a_security(
    page: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, module in of_google().items():
        monkeypatch.setitem(sys.modules, name, module)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["security"].protocol in ("SSL", "SASL_SSL")
    if page == "google" and "fetch_token" in names:
        token = names["fetch_token"]()
        assert token.value.reveal().count(".") == 2
        assert token.expires_at == Granted.expiry.replace(tzinfo=datetime.UTC).timestamp()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("page", "text"), blocks("properties"))
def test_the_file_of_a_page_is_taken(page: str, text: str) -> None:
    given = parse(text)
    security = AdminConfig.from_properties(given).security
    assert security.protocol == given["security.protocol"]
    if security.sasl is not None:
        wanted = given["sasl.mechanism"]
        assert security.sasl.mechanism == {"AWS_MSK_IAM": "OAUTHBEARER"}.get(wanted, wanted)


def test_each_service_has_a_page() -> None:
    assert len(PAGES) == 6
