"""librdkafka, kafka-python and Java's tools log in over TLS, each by another mechanism."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.foreign.run import CI_CLIENTS, SECURED_FEATURES, Report

UNABLE = {
    "librdkafka": {"transactions.describe"},
    "kafka_python": set(),
    "java": {"transactions.commit", "transactions.offsets"},
}


@pytest.mark.timeout(420)  # the first test of a client waits for all that it does
@pytest.mark.parametrize("feature", SECURED_FEATURES)
@pytest.mark.parametrize("client", CI_CLIENTS)
def test_a_foreign_client_works_behind_a_login(
    client: str, feature: str, report_secured: Callable[[str], Report]
) -> None:
    outcome = report_secured(client).outcomes[feature]
    assert outcome.status != "failed", outcome.why
    assert (outcome.status == "unable") == (feature in UNABLE[client]), outcome.why
