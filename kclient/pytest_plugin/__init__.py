"""pytest fixtures: a Kafka cluster inside the test process, for clients in any library.

``kafka_cluster`` is a started cluster, ``kafka_bootstrap`` its address and ``kafka_security`` the
``Security`` of its clients; the marker ``kafka_cluster`` has its options. pytest loads this file in
every project where kclient is installed, so it must stay cheap: nothing of kclient is imported
before a fixture is used. That is why it doesn't live in ``kclient.testing``, whose import takes
longer than many a test run.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from kclient.security import Security
    from kclient.testing import Cluster, ThreadedCluster

MARKER = "kafka_cluster"
_IN_LOOP = "kclient-in-loop"
"""The name under which ``in_loop`` is registered."""
_DEFAULT_BROKERS = "3"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options whose names begin with ``kclient``: a project may have ``--kafka-brokers``."""
    group = parser.getgroup("kclient")
    group.addoption(
        "--kclient-brokers",
        metavar="COUNT",
        help="brokers of the kafka_cluster fixture where its marker doesn't say (else the ini "
        "option kclient_brokers)",
    )
    parser.addini(
        "kclient_brokers",
        "brokers of the kafka_cluster fixture where its marker doesn't say",
        default=_DEFAULT_BROKERS,
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and refuse an invalid count of brokers."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(brokers=3, broker_configs=None, thread=False, ...): the cluster that the "
        "fixture of this name gives, by the arguments of kclient.testing.Cluster; thread=True "
        "runs it in a thread of its own in an async test, too, for clients that block",
    )
    default_brokers(config)


def default_brokers(config: pytest.Config) -> int:
    """How many brokers a cluster has where its marker doesn't set it.

    Raises:
        pytest.UsageError: The option is not a count of at least 1.
    """
    given, source = config.getoption("--kclient-brokers"), "--kclient-brokers"
    if given is None:
        given, source = config.getini("kclient_brokers"), "the ini option kclient_brokers"
    if not str(given).isdecimal() or int(given) < 1:
        raise pytest.UsageError(f"{source} is {given!r}, but must be a count of at least 1")
    return int(given)


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster | ThreadedCluster]:
    """A started Kafka cluster in this process, fresh for each test.

    In tests that pytest-asyncio runs it is a ``kclient.testing.Cluster`` in the test's own loop;
    in all others a ``ThreadedCluster``, which has the same methods without ``await``. The marker
    ``@pytest.mark.kafka_cluster(brokers=1, auto_create_topics=True)`` takes the arguments of
    ``Cluster``.
    """
    scope = loop_scope(request.node)
    if scope is not None:
        plugins = request.config.pluginmanager
        if not plugins.has_plugin(_IN_LOOP):
            from kclient.pytest_plugin import in_loop

            plugins.register(in_loop, _IN_LOOP)
        yield request.getfixturevalue(f"kafka_cluster_in_{scope}_loop")
        return
    from kclient.testing import ThreadedCluster

    with ThreadedCluster(new_cluster(request.node)) as cluster:
        yield cluster


@pytest.fixture
def kafka_bootstrap(kafka_cluster: Cluster | ThreadedCluster) -> str:
    """``host:port`` of each broker of ``kafka_cluster``, joined with commas."""
    return kafka_cluster.bootstrap


@pytest.fixture
def kafka_security(kafka_cluster: Cluster | ThreadedCluster) -> Security:
    """The ``kclient.Security`` of a client of ``kafka_cluster``, which wants it to log in.

    Where no marker has ``security=``, the cluster has a user ``alice`` with the password
    ``secret``, for PLAIN and SCRAM, without TLS; else the user is the first one of that.
    """
    from kclient.errors import InvalidArgument
    from kclient.security import Security

    given = kafka_cluster.security
    if given is None:
        return Security.plaintext()
    try:
        default = "alice" if given.client_certificates else None
        return given.client(next(iter(given.usernames), default))
    except InvalidArgument as error:
        why = str(error)
    _refuse(f"kafka_security has no user: {why}")


def new_cluster(item: pytest.Item) -> Cluster:
    """Make a cluster from the markers of a test, not started.

    An invalid marker fails the test with one line of text.
    """
    from kclient.errors import InvalidArgument, InvalidConfig
    from kclient.testing import Cluster, ClusterSecurity

    wanted = _wanted(item)
    if "kafka_security" in getattr(item, "fixturenames", ()):
        wanted.setdefault("security", ClusterSecurity({"alice": "secret"}))
    wanted.pop("thread", None)
    known = inspect.signature(Cluster).parameters
    for name in wanted:
        if name not in known:
            _refuse(f"knows no {name!r}, only {', '.join((*known, 'thread'))}")
    brokers = wanted.setdefault("brokers", default_brokers(item.config))
    if not isinstance(brokers, int) or isinstance(brokers, bool) or brokers < 1:
        _refuse(f"brokers={brokers!r} must be a count of at least 1")
    try:
        return Cluster(**wanted)
    except (InvalidArgument, InvalidConfig) as error:
        why = str(error)
    _refuse(why)


def loop_scope(item: pytest.Item) -> str | None:
    """The scope of the loop that a test runs in with its cluster.

    Returns:
        None where pytest-asyncio doesn't run the test, or where the marker asks for a thread.
    """
    plugin = sys.modules.get("pytest_asyncio")
    if plugin is None or not plugin.is_async_test(item) or _wanted(item).get("thread"):
        return None
    mark = item.get_closest_marker("asyncio")
    assert mark is not None  # else it were no async test
    named = mark.kwargs.get("loop_scope") or mark.kwargs.get("scope")
    return str(named or item.config.getini("asyncio_default_test_loop_scope"))


def _wanted(item: pytest.Item) -> dict[str, Any]:
    """The arguments of all markers; those of a closer one win."""
    wanted: dict[str, Any] = {}
    for mark in reversed(list(item.iter_markers(MARKER))):
        if mark.args:
            _refuse(f"takes keyword arguments only: what is {mark.args[0]!r}?")
        wanted |= mark.kwargs
    return wanted


def _refuse(why: str) -> NoReturn:
    pytest.fail(f"@pytest.mark.{MARKER}: {why}", pytrace=False)
