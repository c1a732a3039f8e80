"""A pytest plugin of tests/conftest.py: with ``--canaries`` no secret may reach any text.

Secrets of tests have ``canary`` in them. What is searched, for that word as it is, in base64 and in
hexadecimal: all that kclient and asyncio log, from DEBUG on and with tracebacks; texts of kclient's
errors; ``repr``, ``health()`` and ``metrics()`` of clients as they close; warnings; and what a test
wrote to stdout and stderr. A test that has one is reported as failed.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import logging
from collections.abc import Callable, Generator
from typing import Any

import pytest

import kclient
from kclient.errors import KafkaError

WORD = b"canary"
NEEDLES = {
    "plain": WORD.decode(),
    "hexadecimal": WORD.hex(),
    # Base64 depends on how many bytes are before; what is left out depends on the neighbours.
    "base64": base64.b64encode(WORD)[:8].decode(),
    "base64, one before": base64.b64encode(b"." + WORD)[2:8].decode(),
    "base64, two before": base64.b64encode(b".." + WORD)[3:10].decode(),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption(
        "--canaries", action="store_true", help="fail a test whose secrets reach a log or a text"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Listen, if that was asked for."""
    if config.getoption("--canaries"):
        config.pluginmanager.register(CanaryWatch())


class CanaryWatch(logging.Handler):
    """Keeps what it finds until the report of the test at whose end it is."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(logging.Formatter("%(name)s %(threadName)s %(taskName)s: %(message)s"))
        self.found: list[str] = []
        logging.getLogger("kclient").setLevel(logging.DEBUG)
        for name in ("kclient", "asyncio"):
            logging.getLogger(name).addHandler(self)
        self._watch_errors()
        for client in (kclient.Producer, kclient.Consumer, kclient.Admin):
            self._watch_client(client)

    def search(self, where: str, text: str) -> None:
        """Look for canaries in a text."""
        for how, needle in NEEDLES.items():
            if needle in text:
                self.found.append(f"{where} has a secret ({how}): {text}")

    def emit(self, record: logging.LogRecord) -> None:
        """Search a record as it is written, with its traceback."""
        record.__dict__.setdefault("taskName", None)  # new in Python 3.12
        self.search("log", self.format(record))

    def _watch_errors(self) -> None:
        init, text = KafkaError.__init__, KafkaError.__str__

        @functools.wraps(init)
        def watched_init(error: KafkaError, message: str = "", **rest: Any) -> None:
            init(error, message, **rest)
            self.search(type(error).__name__, f"{message} {error.hint}")

        @functools.wraps(text)
        def watched_text(error: KafkaError) -> str:
            said = text(error)
            self.search(type(error).__name__, said)
            return said

        KafkaError.__init__ = watched_init  # type: ignore[method-assign]
        KafkaError.__str__ = watched_text  # type: ignore[method-assign]

    def _watch_client(self, client: Any) -> None:
        close: Callable[..., Any] = client.close

        @functools.wraps(close)
        async def watched_close(self_: Any, *args: Any, **kwargs: Any) -> None:
            with contextlib.suppress(KafkaError):  # one that never started
                for shown in (self_, self_.health(), self_.health().to_dict(), self_.metrics()):
                    self.search(client.__name__, repr(shown))
            await close(self_, *args, **kwargs)

        client.close = watched_close

    def pytest_warning_recorded(self, warning_message: Any) -> None:
        """Search a warning."""
        self.search("warning", str(warning_message.message))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Make a failure of what was found since the last report."""
        report = yield
        for name, text in report.sections:
            if "stdout" in name or "stderr" in name:
                self.search(name, text)
        if self.found and report.when == "teardown":
            report.outcome = "failed"
            report.longrepr = "\n".join(dict.fromkeys(self.found))
            self.found.clear()
        return report
