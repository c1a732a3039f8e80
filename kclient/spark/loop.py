"""One event loop per process, in a thread, with the clients that tasks share.

Spark's Python workers are forked and kept, and call ``read`` from plain code: so the loop starts on
the first use in each process, never on import, and clients stay connected from task to task.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import threading
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from kclient.admin import Admin
from kclient.config import AdminConfig, ConsumerConfig
from kclient.consumer import Consumer
from kclient.errors import InvalidConfig, KafkaError
from kclient.properties import pairs_of
from kclient.spark.options import REFUSED

T = TypeVar("T")

logger = logging.getLogger("kclient.spark")

_MIB = 1024 * 1024
_DEFAULTS: dict[str, Any] = {
    "max.partition.fetch.bytes": 4 * _MIB,
    "fetch.max.bytes": 64 * _MIB,
    "fetch.max.wait.ms": 5,
    "receive.buffer.bytes": 4 * _MIB,
    "client.id": "kclient-spark",
}
"""For whole ranges of few partitions; settings that are given go over them."""
_KEPT = 4
"""Idle clients of other settings or clusters that stay connected."""


class _State:
    """What a process has; a fork gets its own."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self.consumers: dict[str, list[Consumer[Any, Any]]] = {}
        self.admins: dict[str, asyncio.Task[Admin]] = {}
        threading.Thread(target=self.loop.run_forever, name="kclient-spark", daemon=True).start()


_state: _State | None = None
_lock = threading.Lock()


def _process_state() -> _State:
    global _state
    if _state is None or _state.pid != os.getpid():
        with _lock:
            if _state is None or _state.pid != os.getpid():
                _state = _State()
    return _state


def submit(coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Run a coroutine in the loop of this process."""
    return asyncio.run_coroutine_threadsafe(coroutine, _process_state().loop)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run it and wait for its outcome."""
    future = submit(coroutine)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def client_properties(properties: Mapping[str, str], file: str | None) -> dict[str, Any]:
    """The settings of a client by Kafka's names: defaults, those of the file, and those given.

    Raises:
        InvalidConfig: The file can't be read on this node.
    """
    found: dict[str, Any] = dict(_DEFAULTS)
    if file is not None:
        try:
            found |= _usable(pairs_of(file))
        except InvalidConfig as error:
            raise InvalidConfig(
                f"option kclient.properties.file={file!r} can't be read on this node: {error}"
            ) from error
    found |= dict(properties)
    if found.pop("group.id", None) is not None:
        logger.info("group.id has no meaning: the source is no member of a group")
    return found


def _usable(pairs: Mapping[str, Any]) -> dict[str, Any]:
    """What a file has for any client, without what has no meaning for this source."""
    refused = sorted(name for name in pairs if name in REFUSED)
    if refused:
        logger.info("without meaning for a source, and ignored: %s", ", ".join(refused))
    return {name: value for name, value in pairs.items() if name not in REFUSED}


def _key(properties: Mapping[str, Any]) -> str:
    return json.dumps(dict(properties), sort_keys=True)


async def admin_of(properties: Mapping[str, Any]) -> Admin:
    """The Admin of these settings, which stays connected; one for all callers."""
    admins, key = _process_state().admins, _key(properties)
    task = admins.get(key)
    if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
        task = admins[key] = asyncio.ensure_future(_started_admin(properties))
    return await asyncio.shield(task)


async def _started_admin(properties: Mapping[str, Any]) -> Admin:
    _config(ConsumerConfig, properties)  # what a task can't use is refused in the driver
    admin = Admin(config=_config(AdminConfig, properties))
    await admin.start()
    return admin


@contextlib.contextmanager
def consumer_of(properties: Mapping[str, Any]) -> Iterator[Consumer[Any, Any]]:
    """Lend a consumer of these settings, with no partition; it stays connected after use.

    One whose task failed is closed.
    """
    consumers, key = _process_state().consumers, _key(properties)
    idle = consumers.get(key)
    first = not idle
    consumer = idle.pop() if idle else run(_started(properties))
    try:
        yield consumer
    except BaseException:
        submit(consumer.close(1.0))
        raise
    run(_unassigned(consumer))
    if first:
        # Spark's workers collect all garbage after each task: what was imported by the first one,
        # PySpark and pandas too, needn't be looked at each time, which takes up to 0.1 s.
        gc.collect()
        gc.freeze()
    for other in [other for other in consumers if other != key][: -_KEPT or None]:
        for old in consumers.pop(other):
            submit(old.close(1.0))
    consumers.setdefault(key, []).append(consumer)


async def _started(properties: Mapping[str, Any]) -> Consumer[Any, Any]:
    consumer: Consumer[Any, Any] = Consumer(
        config=_config(ConsumerConfig, properties), auto_offset_reset="none"
    )
    await consumer.start()
    return consumer


async def _unassigned(consumer: Consumer[Any, Any]) -> None:
    consumer.unassign()


def _config(kind: Any, properties: Mapping[str, Any]) -> Any:
    try:
        return kind.from_properties(properties)
    except KafkaError as error:
        raise InvalidConfig(f"client settings (kafka.*): {error}") from error
