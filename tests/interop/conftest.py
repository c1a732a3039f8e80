"""Interop runs on the broker that `--broker` names; tests/support/broker_fixtures.py explains."""

from __future__ import annotations

import pytest

from tests.interop.peers.sample import CODECS
from tests.support.broker_fixtures import admin as admin
from tests.support.broker_fixtures import broker as broker
from tests.support.broker_fixtures import clients as clients
from tests.support.broker_fixtures import consumer as consumer
from tests.support.broker_fixtures import producer as producer
from tests.support.broker_fixtures import real_broker as real_broker
from tests.support.broker_fixtures import topic as topic
from tests.support.class_path import parse_version

ZSTD_SINCE = (2, 1, 0)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Exchange records under every codec that the broker knows."""
    if "codec" in metafunc.fixturenames:
        version = metafunc.config.getoption("--broker")
        knows_zstd = version in ("embedded", "docker") or parse_version(version) >= ZSTD_SINCE
        metafunc.parametrize("codec", CODECS if knows_zstd else CODECS[:-1])
