"""franz-go: builds the Go program of `franz_go/` and lets it play."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.foreign.features import FEATURES
from tests.foreign.login import PASSWORD, USERNAME
from tests.foreign.scene import command_line
from tests.support.class_path import cache_directory, require
from tests.support.programs import output_of

_PROGRAM = Path(__file__).parents[1] / "franz_go"
_BUILD_TIMEOUT = 300.0
"""Seconds; the first time it downloads modules."""


def build() -> Path:
    """The program, built."""
    go = require("go", "install Go (1.26 or newer)")
    target = cache_directory() / "foreign" / "franz_go"
    target.parent.mkdir(parents=True, exist_ok=True)
    output_of(
        [go, "build", "-C", str(_PROGRAM), "-o", str(target), "."],
        "the franz-go program did not build",
        _BUILD_TIMEOUT,
    )
    return target


if __name__ == "__main__":
    options = command_line()
    version = re.search(r"franz-go (v\S+)", (_PROGRAM / "go.mod").read_text())
    arguments = [
        *("-bootstrap", options.bootstrap, "-brokers", str(options.brokers)),
        *("-only", ",".join(options.only or FEATURES)),
        *(("-ca", options.ca, "-mechanism", options.mechanism) if options.ca else ()),
        *("-username", USERNAME, "-password", PASSWORD),
        *("-version", version.group(1) if version else "?"),
    ]
    raise SystemExit(subprocess.run([build(), *arguments], check=False).returncode)
