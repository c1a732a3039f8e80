"""``python -m tests.mixed``: run groups of kclient and other clients, and report the outcome.

    python -m tests.mixed                          # every client leaves, dies and freezes
    python -m tests.mixed --short                  # as in CI
    python -m tests.mixed --assignors range --broker 4.3.0|embedded|HOST:PORT

Ends with 0 if every record was read, every partition owned once, and no member was stuck or slow.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from tests.foreign.target import target
from tests.mixed.assignors import FOREIGN
from tests.mixed.run import Wishes, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from a command line; gives the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mixed")
    parser.add_argument("--broker", default="4.3.0")
    parser.add_argument("--assignors", nargs="*", choices=tuple(FOREIGN), default=tuple(FOREIGN))
    parser.add_argument("--ours", type=int, default=2, help="members of kclient in each group")
    parser.add_argument("--short", action="store_true", help="the play of CI")
    options = parser.parse_args(arguments)
    begun = time.monotonic()

    def emit(line: str) -> None:
        sys.stdout.write(f"{time.monotonic() - begun:6.1f} s  {line}\n")
        sys.stdout.flush()

    more = {} if options.short else dict.fromkeys(FOREIGN, ("java_verifiable",))
    wishes = Wishes(ours=options.ours, long=not options.short, more=more)
    with target(options.broker) as place:
        outcomes = run(place.bootstrap, options.assignors, wishes, emit)
    for outcome in outcomes.values():
        sys.stdout.write(f"{outcome}\n")
    wrong = sum(len(one.wrong) + len(one.slow()) for one in outcomes.values())
    sys.stdout.write(f"{wrong} wrong in {time.monotonic() - begun:.0f} s\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
