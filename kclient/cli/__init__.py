"""The command line: ``kclient`` or ``python -m kclient``. One sub-command per file.

It uses the public API only. Typer and Rich come with the extra ``kclient[cli]``; where they are
missing, it writes one line. A user's mistake is one line, too, and exit code 2.
"""

from __future__ import annotations

import sys

_NEEDED = ("rich", "typer")


def main() -> None:
    """Run the command line with the arguments of the process, and exit."""
    try:
        from kclient.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _NEEDED:
            raise
        sys.stderr.write("kclient: the command line needs more: pip install 'kclient[cli]'\n")
        sys.exit(2)
    sys.exit(run())
