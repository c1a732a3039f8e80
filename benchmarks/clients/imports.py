"""CPU of importing a client, in a fresh interpreter that has imported nothing but ``time``.

Each statement imports what a service that reads and writes records needs. Loaded in workers only.
"""

from __future__ import annotations

import subprocess
import sys

from benchmarks.job import Job, Outcome

STATEMENTS = {
    "import of kclient": "from kclient import Consumer, Producer",
    "import of kclient, the name alone": "import kclient",
    "import of confluent-kafka": "from confluent_kafka import Consumer, Producer",
    "import of confluent-kafka aio": "from confluent_kafka.aio import AIOConsumer, AIOProducer",
    "import of aiokafka": "from aiokafka import AIOKafkaConsumer, AIOKafkaProducer",
    "import of kafka-python": "from kafka import KafkaConsumer, KafkaProducer",
}


def timed(job: Job) -> Outcome:
    """Return the best of three runs, as the first one fills file caches."""
    statement = STATEMENTS[job.entry]
    code = f"import time\na = time.process_time()\n{statement}\nprint(time.process_time() - a)"
    found = []
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ImportError(done.stderr.strip().splitlines()[-1])
        found.append(float(done.stdout))
    return {"cpu_ms": min(found) * 1000, "records": 1}
