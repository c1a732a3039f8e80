"""The code of docs/security.md that needs a secured cluster."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import kclient
from kclient import AclFilter
from tests.examples.test_pages import block
from tests.security.people import eventually, log_in
from tests.security.test_logins import security
from tests.support import tls
from tests.support.kafka import RunningBroker


def functions(words: str) -> dict[str, Any]:
    """The names of the one block with ``words`` in it."""
    names: dict[str, Any] = {}
    exec(block("security.md", words), names)
    return names


async def test_what_the_page_administers_is_undone_at_its_end(admin: kclient.Admin) -> None:
    await functions("def administer")["administer"](admin)
    assert await admin.delete_acls([of_orders := AclFilter(principal="User:orders")]) == {
        of_orders: []
    }


async def test_a_client_logs_in_with_what_the_page_hands_out(
    secured: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(tls.certificate(), tmp_path / "ca.pem")
    monkeypatch.chdir(tmp_path)
    bootstrap = secured.sasl_tls_bootstrap
    async with kclient.Admin(bootstrap, security=security("SCRAM-SHA-256")) as alice:
        found = await functions("def hand_out")["hand_out"](alice)
    await eventually(lambda: log_in(bootstrap, found))
