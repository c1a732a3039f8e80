"""The process of one run: ``python -m benchmarks.worker``, a job as JSON on its input.

It prints one line of JSON: figures; ``missing``, if the client or the entry isn't available; or
``error``. Started by ``runner``; nothing else of the bench runs in this process.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
from pathlib import Path

from benchmarks.entries import ENTRIES, KCLIENT
from benchmarks.job import Job, NotRun, Outcome


def run(job: Job) -> Outcome:
    """Run a job; return its outcome, also if it fails."""
    entry = ENTRIES[job.entry]
    try:
        function = entry.function()
        outcome = function(job)
    except ImportError as error:
        word = (
            "error" if entry.client == KCLIENT else "missing"
        )  # a peer may be missing, ours may not
        return {word: f"{entry.client} can't be imported: {error}"}
    except NotRun as error:
        return {"missing": str(error)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    outcome["threads"] = threading.active_count()
    outcome["load"] = os.getloadavg()[0]
    if entry.client == KCLIENT:
        from kclient.record import IMPLEMENTATION

        outcome |= {"build": IMPLEMENTATION, "files": files_of_kclient()}
    return outcome


def files_of_kclient() -> str:
    """Return a hash of all sources and extensions, so that a build or edit meanwhile is noticed."""
    import kclient

    folder, found = Path(kclient.__file__).parent, hashlib.blake2b(digest_size=8)
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".py", ".so", ".pyd"):
            found.update(f"{path.relative_to(folder)}".encode())
            found.update(path.read_bytes())
    return found.hexdigest()


def main() -> int:
    outcome = run(Job.from_json(sys.stdin.read()))
    sys.stdout.write(f"\n{json.dumps(outcome)}\n")
    sys.stdout.flush()
    return 1 if "error" in outcome else 0


if __name__ == "__main__":
    sys.exit(main())
