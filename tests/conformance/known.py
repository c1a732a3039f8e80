"""Where the embedded cluster is known to respond differently from Apache Kafka, and why.

`test_agreement.py` expects these scenarios to differ, strictly: one that agrees must be removed
from the list. Nothing else may be left out of the comparison.
"""

from __future__ import annotations

KNOWN: dict[str, str] = {
    "three_outages.a_replica_vanishes_before_it_is_missed": (
        "a broker that crashes is missed at once, with Kafka after broker.session.timeout.ms"
    ),
}
"""Names of scenarios, and what differs."""
