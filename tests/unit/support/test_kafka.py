"""How the brokers of the tests are started, as far as that needs no broker."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest

from tests.support import jvm, kafka
from tests.support.broker_settings import Ports


class Alive:
    """A stand-in for a process that is alive."""

    def alive(self) -> bool:
        return True

    def stop(self, grace: float) -> None:
        raise AssertionError("nothing was to be stopped")


def test_the_first_connection_to_zookeeper_stays_until_the_broker_is_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Closing it earlier left ZooKeeper, in some starts, in a busy loop that fills its log."""
    process = Alive()
    monkeypatch.setattr(jvm, "launch", lambda *_: process)
    with socket.create_server(("127.0.0.1", 0)) as zookeeper:
        ports = Ports(plain=0, tls=0, control=zookeeper.getsockname()[1])
        with contextlib.ExitStack() as held:
            assert kafka._start_zookeeper([], "", tmp_path, ports, held) is process
            accepted, _ = zookeeper.accept()
            with accepted:
                accepted.settimeout(0.05)
                with pytest.raises(TimeoutError):
                    accepted.recv(1)
                held.close()
                accepted.settimeout(5.0)
                assert accepted.recv(1) == b""
