"""The watch for secrets finds them wherever a test lets one out, and is silent otherwise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[3]
LEAKS = """
import base64, logging, sys
import kclient
from kclient.testing import Cluster

CANARY = "canary-4b1d"
logger = logging.getLogger("kclient.network")

def test_log():
    logger.debug("password %s", CANARY)

def test_traceback():
    try:
        raise ValueError(CANARY)
    except ValueError:
        logger.info("failed", exc_info=True)

def test_encoded():
    for before in range(3):
        logger.debug("sent %s", base64.b64encode(bytes(before) + CANARY.encode()))

def test_output():
    print(CANARY)

def test_standard_error():
    sys.stderr.write(CANARY)

def test_error():
    kclient.KafkaError(f"bad password {CANARY}")

def test_cause():
    error = kclient.KafkaError("bad password")
    error.__cause__ = ValueError(CANARY)
    str(error)

async def test_client():
    async with Cluster(brokers=1) as cluster:
        async with kclient.Admin(cluster.bootstrap, client_id=CANARY):
            pass

def test_clean():
    logger.debug("password %s", kclient.Secret(CANARY))
    print("none")
    str(kclient.KafkaError("bad password"))
"""


def test_each_way_out_is_watched(tmp_path: Path) -> None:
    (tmp_path / "test_leaks.py").write_text(LEAKS)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-rA", "-p", "tests.support.canaries"),
            *("--canaries", "-c", "/dev/null", "-o", "asyncio_mode=auto"),
            str(tmp_path / "test_leaks.py"),
        ],
        cwd=PROJECT,
        env={name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"},
        capture_output=True,
        text=True,
        timeout=60.0,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    failed = set(re.findall(r"^ERROR .*::test_(\w+)", done.stdout, re.MULTILINE))
    assert failed == set(re.findall(r"def test_(\w+)", LEAKS)) - {"clean"}
    assert done.stdout.count("has a secret (base64") >= 3
