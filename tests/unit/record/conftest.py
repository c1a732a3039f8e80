"""The fixture ``build``: each test that uses it runs on both builds of the record codec.

A missing compiled build fails the test; only ``KCLIENT_PURE=1`` in the environment, which selects
the pure one, leaves it out.
"""

from __future__ import annotations

import os

import pytest

from kclient.producer import arrow_source
from kclient.record import columnar, message_set, record_batch
from kclient.record.implementation import Implementation, load

BUILDS = ("pure",) if os.environ.get("KCLIENT_PURE", "") not in ("", "0") else ("pure", "cython")


@pytest.fixture(params=BUILDS)
def build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Implementation:
    """One build, which replaces the one in use."""
    chosen = load(request.param)
    for module in (record_batch, message_set, columnar, arrow_source):
        monkeypatch.setattr(module, "codec", chosen)
    return chosen
