"""librdkafka, kafka-python and Java's tools run unchanged on the embedded cluster.

With `--broker 4.3.0` they run on Apache Kafka: a failure there is the script's.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.foreign.features import FEATURES
from tests.foreign.run import CI_CLIENTS, Report

UNABLE = {
    "librdkafka": {"cluster.versions", "cluster.log_dirs", "transactions.describe"},
    "kafka_python": set(),
    "java": set(),
}
"""What these clients don't have: a script must not leave out more than that."""


@pytest.mark.timeout(420)  # the first test of a client waits for all that it does
@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("client", CI_CLIENTS)
def test_a_foreign_client_does_what_it_can(
    client: str, feature: str, report: Callable[[str], Report]
) -> None:
    outcome = report(client).outcomes[feature]
    assert outcome.status != "failed", outcome.why
    assert (outcome.status == "unable") == (feature in UNABLE[client]), outcome.why
