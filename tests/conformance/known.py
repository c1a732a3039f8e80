"""Where the embedded cluster is known to respond differently from Apache Kafka, and why.

`test_agreement.py` expects these scenarios to differ, strictly: one that agrees must be removed
from the list. Nothing else may be left out of the comparison.
"""

from __future__ import annotations

KNOWN: dict[str, str] = {
    "three_transactions.an_end_while_a_partition_has_no_leader": (
        "the marker is written once there is a leader; Kafka 4.3.0 takes such a partition for a "
        "deleted one, and so its transaction stays open for ever"
    ),
    "transactional_writes.aborted_transactions_behind_what_was_read": (
        "the aborted transactions of the batches, with Kafka also later ones, up to the next entry "
        "of its sparse offset index"
    ),
    "three_outages.a_replica_vanishes_before_it_is_missed": (
        "a broker that crashes is missed at once, with Kafka after broker.session.timeout.ms"
    ),
}
"""Names of scenarios, and what differs."""
