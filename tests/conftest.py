"""What every ring of the tests has: options, the header, and the house rules as plugins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import hypothesis
import pytest

import kclient
from kclient.record import IMPLEMENTATION
from kclient.testing import VirtualLoop
from tests.support.outcomes import OutcomeWriter

# The same cases in every run; `--hypothesis-profile=default` explores others.
hypothesis.settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
hypothesis.settings.load_profile("repeatable")

VIRTUAL = Path(__file__).parent / "virtual"

pytest_plugins = ["tests.support.leaks", "tests.support.skip_policy"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Say what the tests run on."""
    group = parser.getgroup("kclient")
    group.addoption(
        "--broker",
        default="embedded",
        help="embedded, or a release of Apache Kafka such as 4.3.0, for behaviours and interop",
    )
    group.addoption(
        "--loop", choices=("asyncio", "uvloop"), default="asyncio", help="the event loop to run on"
    )
    group.addoption(
        "--implementation",
        choices=("cython", "pure"),
        help="fail unless this build of the record codec is in use (KCLIENT_PURE=1 picks pure)",
    )
    group.addoption("--outcomes", type=Path, help="write the outcome of each test to this file")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to test another build than the one that was asked for."""
    wanted = config.getoption("--implementation")
    if wanted not in (None, IMPLEMENTATION):
        raise pytest.UsageError(f"asked for the {wanted} build, but {IMPLEMENTATION} is in use")
    outcomes = config.getoption("--outcomes")
    if outcomes is not None:
        run = {
            "broker": config.getoption("--broker"),
            "implementation": IMPLEMENTATION,
            "loop": config.getoption("--loop"),
        }
        config.pluginmanager.register(OutcomeWriter(outcomes, run))


def pytest_report_header(config: pytest.Config) -> str:
    """Say in the header what is tested on what."""
    broker, loop = config.getoption("--broker"), config.getoption("--loop")
    return (
        f"kclient {kclient.__version__}, record codec: {IMPLEMENTATION}, "
        f"broker: {broker}, loop: {loop}"
    )


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run async tests on the loop that was asked for; those of tests/virtual on virtual time."""
    if VIRTUAL in item.path.parents:
        return {"virtual": VirtualLoop}
    if config.getoption("--loop") == "asyncio":
        return {"asyncio": asyncio.new_event_loop}
    import uvloop

    return {"uvloop": uvloop.new_event_loop}
