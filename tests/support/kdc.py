"""A Kerberos KDC of MIT's for tests, on loopback; everything of it is in one folder.

`running` starts it, and ends it by its pid: it needs Debian's krb5-kdc, krb5-admin-server and
krb5-user. MIT's programs and libraries find it by `environment`, Java by `jvm_option`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.free_ports import ports_in_a_row
from tests.support.programs import output_of

REALM = "KCLIENT.TEST"
_PATIENCE = 20.0
_KRB5_CONF = """[libdefaults]
default_realm = {realm}
dns_lookup_kdc = false
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
[realms]
{realm} = {{
  kdc = 127.0.0.1:{port}
}}
"""
_KDC_CONF = """[kdcdefaults]
kdc_listen = ""
kdc_tcp_listen = 127.0.0.1:{port}
[realms]
{realm} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
  max_life = 1h
}}
"""


@dataclass(frozen=True, slots=True)
class Kdc:
    """A running KDC, with its realm."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """What MIT's programs and libraries find it by; there is no ticket in that cache."""
        return {
            "KRB5_CONFIG": str(self.folder / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{self.folder / 'no.tickets'}",
            # Debian has servers where the path of users doesn't lead.
            "PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin",
        }

    @property
    def jvm_option(self) -> str:
        """What Java finds it by."""
        return f"-Djava.security.krb5.conf={self.folder / 'krb5.conf'}"

    def keytab_of(self, principal: str) -> Path:
        """Return the file with the key of a principal."""
        return self.folder / f"{principal.replace('/', '-')}.keytab"

    def add(self, principal: str, *options: str) -> None:
        """Make a principal, named without the realm, with options of kadmin's addprinc."""
        self._run("kadmin.local", "addprinc", "-randkey", *options, principal)
        self._run("kadmin.local", "ktadd", "-k", str(self.keytab_of(principal)), principal)

    def tickets(self, principal: str, *options: str) -> str:
        """Get a ticket with options of kinit, and return its cache as of KRB5CCNAME."""
        cache = f"FILE:{self.folder / principal}.tickets"
        keytab = str(self.keytab_of(principal))
        self._run("kinit", "-c", cache, "-k", "-t", keytab, *options, principal)
        return cache

    def _run(self, program: str, *arguments: str) -> None:
        env = os.environ | self.environment
        output_of([program, *arguments], f"{program} failed", _PATIENCE, env)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Kdc]:
    """A KDC that keeps all of its files in ``folder``, and ends with the block."""
    kdc = Kdc(folder)
    port = ports_in_a_row(1)
    for name, text in (("krb5.conf", _KRB5_CONF), ("kdc.conf", _KDC_CONF)):
        (folder / name).write_text(text.format(realm=REALM, port=port, folder=folder))
    kdc._run("kdb5_util", "create", "-s", "-P", "of a throw-away realm")
    with (folder / "kdc.log").open("wb") as log:
        process = subprocess.Popen(
            ["krb5kdc", "-n"],
            env=os.environ | kdc.environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        _await_ready(process, port, folder)
        yield kdc
    finally:
        process.terminate()
        process.wait(_PATIENCE)


def _await_ready(process: subprocess.Popen[bytes], port: int, folder: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        time.sleep(0.02)
    raise RuntimeError(f"the KDC did not come up:\n{(folder / 'kdc.log').read_text()}")
