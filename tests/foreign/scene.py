"""``play``: runs the features of one client in this process and reports outcomes line by line.

Programs in `clients/` end with it; `run` reads what it writes. One line of JSON per feature, at
once, so that a client that hangs or dies loses only the current one. What a client saw has no
addresses, ids or times in it: on two brokers that agree it is the same.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import json
import re
import secrets
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kclient import Admin, NewTopic, Security
from tests.foreign.features import FEATURES
from tests.foreign.login import PASSWORD, USERNAME, Login
from tests.support import raw_admin

PATIENCE = 30.0
"""Seconds that a client may take for one thing."""
FEATURE_LIMIT = 100.0
"""Seconds for a feature; a client that takes longer is ended with its threads' stacks."""
FIRST_TIME = 1_700_000_000_000
"""The timestamp of records for which it matters, in ms since the epoch."""
_RANDOM = re.compile(r"(foreign-[a-z-]+)-[0-9a-f]{8}\b")
"""What `Scene.name` makes."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The broker or cluster that a client plays on.

    Attributes:
        bootstrap: Its addresses.
        brokers: How many there are.
        login: What clients must log in with; None where they needn't.
    """

    bootstrap: str
    brokers: int
    login: Login | None = None

    @property
    def replicas(self) -> int:
        """Replicas of topics: three, or as many as there are brokers."""
        return min(3, self.brokers)

    def name(self, stem: str) -> str:
        """A unique name."""
        return f"foreign-{stem}-{secrets.token_hex(4)}"

    def topic(self, stem: str, partitions: int = 1, **configs: object) -> str:
        """A new topic that all brokers know; configs as in Kafka, with underscores for dots."""
        name = self.name(stem)
        spelled = {key.replace("_", "."): str(value) for key, value in configs.items()}
        if self.login is not None:
            creation = self._create_logged_in(NewTopic(name, partitions, configs=spelled))
            with ThreadPoolExecutor(1) as beside:  # a client may have a loop in this thread
                beside.submit(asyncio.run, creation).result()
            return name
        raw_admin.create_topic(
            self.bootstrap,
            name,
            partitions=partitions,
            replication_factor=self.replicas,
            configs=spelled,
        )
        for host, port in raw_admin.metadata(self.bootstrap, []).brokers.values():
            until(lambda at=f"{host}:{port}": _knows(at, name), f"{host}:{port} knows {name}")
        return name

    async def _create_logged_in(self, topic: NewTopic) -> None:
        """Create a topic that all brokers know, where raw requests would not be let in."""
        assert self.login is not None
        security = Security.sasl_plain(USERNAME, PASSWORD, ca_file=self.login.ca_file)
        async with Admin(self.bootstrap, security=security) as admin:
            await admin.create_topics([topic])


def _knows(broker: str, topic: str) -> bool:
    error, leaders = raw_admin.metadata(broker, [topic]).topics[topic]
    return error == 0 and min(leaders.values()) >= 0


Feature = Callable[[Scene], object]


def equal(seen: object, expected: object, what: str = "") -> None:
    """Demand that the client saw what it should."""
    if seen != expected:
        raise AssertionError(f"{what or 'seen'}: {seen!r}, expected {expected!r}")


def true(condition: object, what: str) -> None:
    """Demand that ``what`` holds."""
    if not condition:
        raise AssertionError(what)


def refusal(call: Callable[[], object], *kinds: type[Exception]) -> Exception:
    """The error of these kinds that a call must raise."""
    try:
        answer = call()
    except kinds as error:
        return error
    raise AssertionError(f"not refused, but answered {answer!r}")


def until(look: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    """Poll until it is true: a controller responds before all brokers know of a change."""
    deadline = time.monotonic() + patience
    while not look():
        true(time.monotonic() < deadline, f"still not so after {patience:g} s: {what}")
        time.sleep(0.02)


def by_name(functions: Iterable[Feature]) -> dict[str, Feature]:
    """Features by the names of their functions: ``cluster_log_dirs`` plays "cluster.log_dirs"."""
    names = {name.replace(".", "_"): name for name in FEATURES}
    return {names[one.__name__]: one for one in functions}


def emit(feature: str, status: str, **more: object) -> None:
    """Write one outcome."""
    line = json.dumps({"feature": feature, "status": status, **more}, default=str)
    sys.stdout.write(_RANDOM.sub(r"\1", line) + "\n")
    sys.stdout.flush()


def play(
    version: str,
    features: Mapping[str, Feature],
    unable: Mapping[str, str],
    arguments: Iterable[str] | None = None,
) -> None:
    """Play the features that the command line asks for, by default all.

    Args:
        version: Of the client.
        features: How it does each.
        unable: What it can't do, and why.
        arguments: The command line; that of the process by default.
    """
    options = command_line(arguments)
    unknown = (set(features) | set(unable)) ^ set(FEATURES)
    twice = set(features) & set(unable)
    if unknown or twice:
        raise SystemExit(f"features left out, unknown or told twice: {sorted(unknown | twice)}")
    login = Login(options.ca, options.mechanism) if options.ca else None
    scene = Scene(options.bootstrap, options.brokers, login)
    emit("version", "ok", seen=version)
    for name in options.only or FEATURES:
        if name in unable:
            emit(name, "unable", why=unable[name])
        else:
            _play_one(name, features[name], scene)


def command_line(arguments: Iterable[str] | None = None) -> argparse.Namespace:
    """What every program of `clients/` understands."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--only", nargs="*", choices=FEATURES)
    parser.add_argument("--ca", help="clients log in, and this authority is to be trusted")
    parser.add_argument("--mechanism", default="SCRAM-SHA-512")
    return parser.parse_args(None if arguments is None else list(arguments))


def _play_one(name: str, feature: Feature, scene: Scene) -> None:
    faulthandler.dump_traceback_later(FEATURE_LIMIT, exit=True)
    begun = time.monotonic()
    try:
        seen = feature(scene)
    except Exception:
        emit(name, "failed", error=traceback.format_exc(), seconds=_since(begun))
    else:
        emit(name, "ok", seen=seen, seconds=_since(begun))
    finally:
        faulthandler.cancel_dump_traceback_later()


def _since(begun: float) -> float:
    return round(time.monotonic() - begun, 3)
