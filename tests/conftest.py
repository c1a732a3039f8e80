"""What every ring of the tests has: options, the header, and the house rules as plugins."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import hypothesis
import pytest

import kclient
from kclient.record import IMPLEMENTATION
from kclient.testing import VirtualLoop
from tests.docker.container import DEFAULT_IMAGE
from tests.support.broker_fixtures import USED_IMAGE
from tests.support.builds import in_another_build
from tests.support.outcomes import OutcomeWriter

# The same cases in every run; `--hypothesis-profile=default` explores others.
hypothesis.settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
hypothesis.settings.load_profile("repeatable")

VIRTUAL = Path(__file__).parent / "virtual"
HANG = 4 * 3600.0
"""Virtual seconds that an async test may take: one that hangs fails after seconds of real time."""

pytest_plugins = ["tests.support.canaries", "tests.support.leaks", "tests.support.skip_policy"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose what the tests run on."""
    group = parser.getgroup("kclient")
    group.addoption(
        "--broker",
        default="embedded",
        help="embedded, docker, or a release of Apache Kafka, as 4.3.0, for behaviours and interop",
    )
    group.addoption(
        "--docker",
        action="store_true",
        default=os.environ.get("KCLIENT_TEST_DOCKER", "0") not in ("", "0"),
        help="the same as --broker docker: a container (KCLIENT_TEST_DOCKER=1 asks for it, too)",
    )
    group.addoption(
        "--docker-image",
        default=os.environ.get("KCLIENT_TEST_DOCKER_IMAGE") or DEFAULT_IMAGE,
        help="the image of that container (else KCLIENT_TEST_DOCKER_IMAGE, else %(default)s)",
    )
    group.addoption(
        "--loop", choices=("asyncio", "uvloop"), default="asyncio", help="the event loop to run on"
    )
    group.addoption(
        "--implementation",
        choices=("cython", "pure"),
        help="fail unless this build of all compiled modules is in use (KCLIENT_PURE=1: pure)",
    )
    group.addoption(
        "--fewer-seeds",
        type=int,
        default=1,
        metavar="N",
        help="the long tests of tests/virtual run one Nth of their seeds",
    )
    group.addoption("--outcomes", type=Path, help="write the outcome of each test to this file")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to test on another build or broker than the one that was asked for."""
    if config.getoption("--docker"):
        if config.getoption("--broker") not in ("embedded", "docker"):
            raise pytest.UsageError("asked for Docker and for another broker: choose one")
        config.option.broker = "docker"
    if config.getoption("--broker") == "docker" and "KCLIENT_TEST_BOOTSTRAP" in os.environ:
        raise pytest.UsageError("asked for Docker, and KCLIENT_TEST_BOOTSTRAP is set: choose one")
    wanted = config.getoption("--implementation")
    if wanted not in (None, IMPLEMENTATION):
        raise pytest.UsageError(f"asked for the {wanted} build, but {IMPLEMENTATION} is in use")
    if wanted is not None and (others := in_another_build(wanted)):
        raise pytest.UsageError(f"asked for the {wanted} build, but not so: {', '.join(others)}")
    outcomes = config.getoption("--outcomes")
    if outcomes is not None and not hasattr(config, "workerinput"):  # xdist's controller gets all
        run = {
            "broker": config.getoption("--broker"),
            "implementation": IMPLEMENTATION,
            "loop": config.getoption("--loop"),
        }
        config.pluginmanager.register(OutcomeWriter(outcomes, run))


@pytest.hookimpl(optionalhook=True)  # pytest-xdist's
def pytest_xdist_auto_num_workers() -> int | None:
    """One more than there are cores for ``-n auto``: a quarter of the time tests only wait."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return (os.cpu_count() or 1) + 1


@pytest.fixture
def fewer_seeds(pytestconfig: pytest.Config) -> int:
    """By how much the seeds of a long test, and what they must come to, are divided."""
    return int(pytestconfig.getoption("--fewer-seeds"))


def pytest_report_header(config: pytest.Config) -> str:
    """Show in the header what is tested on what."""
    broker, loop = config.getoption("--broker"), config.getoption("--loop")
    if broker == "docker":
        broker += f" ({config.getoption('--docker-image')})"
    return (
        f"kclient {kclient.__version__}, record codec: {IMPLEMENTATION}, "
        f"broker: {broker}, loop: {loop}"
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show which image ran."""
    if used := terminalreporter.config.stash.get(USED_IMAGE, None):
        terminalreporter.write_line(f"in Docker: {used}")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run async tests on the loop that was asked for; those of tests/virtual on virtual time."""
    if VIRTUAL in item.path.parents:
        return {"virtual": partial(VirtualLoop, limit=HANG)}
    if config.getoption("--loop") == "asyncio":
        return {"asyncio": asyncio.new_event_loop}
    import uvloop

    return {"uvloop": uvloop.new_event_loop}
