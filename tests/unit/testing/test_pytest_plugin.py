"""The pytest plugin, in pytest sessions inside this one, as a project would run them."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PLUGIN = "kclient.pytest_plugin"
ROOT = Path(__file__).parents[3]
# Loaded by its module name, so that the installed tree doesn't matter.
ARGUMENTS = ("-p", PLUGIN, "-p", "no:kclient", "-p", "no:randomly")
WATCH = """
import os, threading

def sockets():
    descriptors = [f"/proc/self/fd/{one}" for one in os.listdir("/proc/self/fd")]
    links = [os.readlink(one) for one in descriptors if os.path.islink(one)]
    return sorted(one for one in links if one.startswith("socket:"))

def pytest_sessionfinish():
    print("left behind:", threading.enumerate()[1:], sockets())
"""


def run(pytester: pytest.Pytester, source: str, *arguments: str) -> pytest.RunResult:
    """Run a project's tests in a process of their own, where modules may be imported again."""
    pytester.makepyfile(source)
    with (pytester.path / "conftest.py").open("a") as file:
        file.write(WATCH)
    strict = ["--strict-markers", "-W", "error", "--capture=no"]
    if "no:asyncio" not in arguments:
        strict += ["-o", "asyncio_default_fixture_loop_scope=function"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        done = pytester.runpytest_subprocess(*ARGUMENTS, *strict, *arguments)
    if done.ret != pytest.ExitCode.USAGE_ERROR:
        assert "left behind: [] []" in str(done.stdout)
    return done


def test_an_async_test_has_the_cluster_in_its_own_loop(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
        import asyncio, threading
        import pytest, pytest_asyncio
        import kclient
        from kclient.testing import Cluster

        async def use(cluster, bootstrap):
            assert type(cluster) is Cluster
            assert cluster.topics == []
            cluster.create_topic("flights")
            async with asyncio.timeout(30), kclient.Producer(bootstrap) as producer:
                await producer.send("flights", b"UA 1545")
            assert cluster.records("flights")[0].value == b"UA 1545"
            assert "kclient-cluster" not in [one.name for one in threading.enumerate()]

        @pytest.mark.asyncio
        async def test_own_loop(kafka_cluster, kafka_bootstrap):
            assert len(kafka_cluster.brokers) == 3
            await use(kafka_cluster, kafka_bootstrap)

        @pytest.mark.asyncio(loop_scope="module")
        class TestInTheLoopOfTheModule:
            async def test_one(self, kafka_cluster, kafka_bootstrap):
                await use(kafka_cluster, kafka_bootstrap)

            async def test_another(self, kafka_cluster, kafka_bootstrap):
                await use(kafka_cluster, kafka_bootstrap)

        @pytest_asyncio.fixture
        async def producer(kafka_bootstrap):
            async with kclient.Producer(kafka_bootstrap) as producer:
                yield producer

        @pytest.mark.asyncio
        async def test_fixtures_of_the_project_use_it(kafka_cluster, producer):
            kafka_cluster.create_topic("flights")
            await producer.send("flights", b"UA 1545")
        """,
        "-o",
        "asyncio_mode=strict",
    )
    done.assert_outcomes(passed=4)


def test_the_loop_that_the_project_chose_for_its_tests_counts(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
        import kclient

        async def test_all_in_one_loop(kafka_bootstrap):
            async with kclient.Admin(kafka_bootstrap) as admin:
                assert len((await admin.describe_cluster()).brokers) == 3
        """,
        "--asyncio-mode=auto",
        *("-o", "asyncio_default_test_loop_scope=session"),
    )
    done.assert_outcomes(passed=1)


def test_on_virtual_time_the_cluster_is_on_the_network_in_memory(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(
        """
        from kclient.testing import VirtualLoop

        def pytest_asyncio_loop_factories(config, item):
            return {"virtual": VirtualLoop}
        """
    )
    done = run(
        pytester,
        """
        import asyncio

        async def test_a_day(kafka_bootstrap):
            assert kafka_bootstrap.startswith("broker-1:9092,")
            await asyncio.sleep(80_000)
        """,
        "--asyncio-mode=auto",
    )
    done.assert_outcomes(passed=1)


def test_a_plain_test_has_the_cluster_in_a_thread(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
        import socket
        import pytest
        from kclient.testing import ThreadedCluster

        def test_plain(kafka_cluster, kafka_bootstrap):
            assert type(kafka_cluster) is ThreadedCluster
            assert kafka_bootstrap == kafka_cluster.bootstrap
            kafka_cluster.create_topic("flights")
            assert kafka_cluster.topics == ["flights"]
            host, port = kafka_bootstrap.split(",")[0].split(":")
            socket.create_connection((host, int(port))).close()

        def test_that_fails(kafka_cluster):
            assert kafka_cluster.topics == ["flights"]  # of the test before

        @pytest.mark.asyncio
        @pytest.mark.kafka_cluster(thread=True)
        async def test_that_blocks_its_loop(kafka_cluster):
            assert type(kafka_cluster) is ThreadedCluster
            kafka_cluster.crash(1)
        """,
    )
    done.assert_outcomes(passed=2, failed=1)


def test_pytest_asyncio_is_not_needed(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        "def test_it(kafka_cluster): assert kafka_cluster.topics == []",
        "-p",
        "no:asyncio",
    )
    done.assert_outcomes(passed=1)


def test_markers_configure_the_cluster(pytester: pytest.Pytester) -> None:
    source = """
        import pytest

        pytestmark = pytest.mark.kafka_cluster(broker_configs={"num.partitions": 7})

        def test_default(kafka_cluster):
            assert (len(kafka_cluster.brokers), partitions(kafka_cluster)) == (%d, 7)

        @pytest.mark.kafka_cluster(brokers=2, racks=["a", "b"])
        class TestOfAClass:
            def test_of_the_class(self, kafka_cluster):
                racks = [one.rack for one in kafka_cluster.brokers.values()]
                assert (racks, partitions(kafka_cluster)) == (["a", "b"], 7)

            @pytest.mark.kafka_cluster(broker_configs=None)
            def test_of_its_own(self, kafka_cluster):
                assert (len(kafka_cluster.brokers), partitions(kafka_cluster)) == (2, 1)

        def partitions(cluster):
            return cluster.partition_count(cluster.create_topic("t"))
    """
    pytester.makeini("[pytest]\nkclient_brokers = 4")
    run(pytester, source % 4).assert_outcomes(passed=3)
    run(pytester, source % 1, "--kclient-brokers=1").assert_outcomes(passed=3)


def test_a_marker_that_cannot_be_is_one_line(pytester: pytest.Pytester) -> None:
    cases = {
        "brokers=0": "brokers=0 must be a count of at least 1",
        "brokers='3'": "brokers='3' must be a count of at least 1",
        "racks=['a']": "racks names 1 racks for 3 brokers",
        "broker_configs={'nope': 1}": "has no configuration 'nope'",
        "broker=3": "knows no 'broker', only brokers, ",
        "3": "takes keyword arguments only: what is 3?",
    }
    tests = [
        f"@pytest.mark.kafka_cluster({arguments})\ndef test_{index}(kafka_cluster): pass\n"
        for index, arguments in enumerate(cases)
    ]
    done = run(pytester, "import pytest\n" + "\n".join(tests))
    done.assert_outcomes(errors=len(cases))
    for index, text in enumerate(cases.values()):
        at = done.outlines.index(
            next(one for one in done.outlines if f"ERROR at setup of test_{index} " in one)
        )
        assert done.outlines[at + 1].startswith("@pytest.mark.kafka_cluster: ")
        assert text in done.outlines[at + 1]
        assert done.outlines[at + 2].startswith(("_____", "====="))


def test_a_secured_cluster_comes_with_what_a_client_needs(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
        import asyncio
        import pytest
        import kclient
        from kclient.testing import ClusterSecurity

        SECURITY = ClusterSecurity({"carol": "x"}, mechanisms=["SCRAM-SHA-512"], tls=True)

        async def use(bootstrap, security):
            async with asyncio.timeout(30), kclient.Admin(bootstrap, security=security) as admin:
                await admin.list_topics()

        @pytest.mark.asyncio
        async def test_in_its_loop(kafka_cluster, kafka_security):
            assert kafka_cluster.security.usernames == ("alice",)
            await use(kafka_cluster.bootstrap, kafka_security)
            with pytest.raises(kclient.BootstrapFailed):
                await use(kafka_cluster.bootstrap, kclient.Security.plaintext())

        @pytest.mark.kafka_cluster(brokers=1, security=SECURITY)
        def test_in_a_thread(kafka_bootstrap, kafka_security):
            asyncio.run(use(kafka_bootstrap, kafka_security))

        @pytest.mark.kafka_cluster(brokers=1, security=None)
        def test_without(kafka_bootstrap, kafka_security):
            asyncio.run(use(kafka_bootstrap, kafka_security))

        @pytest.mark.kafka_cluster(security=ClusterSecurity(mechanisms=["OAUTHBEARER"]))
        def test_without_a_user(kafka_security):
            pass
        """,
    )
    done.assert_outcomes(passed=3, errors=1)
    assert "kafka_security has no user: " in str(done.stdout)


@pytest.mark.parametrize(
    "arguments", [("--kclient-brokers=0",), ("--kclient-brokers=",), ("-o", "kclient_brokers=two")]
)
def test_an_option_that_is_no_count_is_refused(
    pytester: pytest.Pytester, arguments: tuple[str, ...]
) -> None:
    done = run(pytester, "", *arguments)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    name, _, given = arguments[-1].partition("=")
    assert f"{name} is {given!r}, but must be a count of at least 1" in str(done.stderr)


def test_projects_that_do_not_use_it_load_next_to_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(): pass")
    code = f"""
import sys, pytest
class Watch:
    def pytest_sessionfinish(self):
        ours = [one for one in sys.modules if one.startswith("kclient")]
        print("loaded:", *sorted(ours), "asyncio" in sys.modules)
sys.exit(pytest.main([*{(*ARGUMENTS, "-p", "no:asyncio", "-p", "no:anyio")!r}, "-s"], [Watch()]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=pytester.path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "loaded: kclient kclient.pytest_plugin False\n" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"kclient": PLUGIN}
    assert (ROOT / PLUGIN.replace(".", "/") / "__init__.py").is_file()
