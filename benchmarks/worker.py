"""The process of one run: ``python -m benchmarks.worker``, a job as JSON on its input.

It prints one line of JSON: figures; ``missing``, where the client or the door isn't there; or
``error``. Started by ``runner``; nothing else of the bench runs in this process.
"""

from __future__ import annotations

import json
import os
import sys
import threading

from benchmarks.doors import DOORS
from benchmarks.job import Job, NotRun, Outcome


def run(job: Job) -> Outcome:
    """The outcome of a job, whatever happens to it."""
    door = DOORS[job.door]
    try:
        function = door.function()
        outcome = function(job)
    except ImportError as error:
        return {"missing": f"{door.client} can't be imported: {error}"}
    except NotRun as error:
        return {"missing": str(error)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    outcome["threads"] = threading.active_count()
    outcome["load"] = os.getloadavg()[0]
    if door.client == "kclient":
        from kclient.record import IMPLEMENTATION

        outcome["build"] = IMPLEMENTATION
    return outcome


def main() -> int:
    outcome = run(Job.from_json(sys.stdin.read()))
    sys.stdout.write(f"\n{json.dumps(outcome)}\n")
    sys.stdout.flush()
    return 1 if "error" in outcome else 0


if __name__ == "__main__":
    sys.exit(main())
