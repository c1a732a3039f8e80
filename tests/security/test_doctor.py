"""``kclient doctor`` on the listeners of a real broker."""

from __future__ import annotations

import pytest

from kclient import AdminConfig, Security
from kclient.doctor.examination import examine
from kclient.doctor.findings import Cause, Step
from tests.security.test_logins import CANARY, security
from tests.support import tls
from tests.support.kafka import RunningBroker


async def steps_of(bootstrap: str, how: Security) -> list[Step]:
    config = AdminConfig.of(None, {"bootstrap": bootstrap, "security": how})
    steps: list[Step] = []
    await examine(config, steps.append, timeout=10.0)
    return steps


async def test_the_doctor_on_each_listener(
    secured: RunningBroker, request: pytest.FixtureRequest
) -> None:
    version = request.config.getoption("--broker")
    release = ".".join((version if version != "embedded" else "4.3").split(".")[:2])
    listeners = {
        secured.bootstrap: Security.plaintext(),
        secured.tls_bootstrap: Security.tls(ca_file=tls.certificate()),
        secured.sasl_bootstrap: security("SCRAM-SHA-256", encrypted=False),
        secured.sasl_tls_bootstrap: security("OAUTHBEARER"),
    }
    for bootstrap, how in listeners.items():
        steps = await steps_of(bootstrap, how)
        names = ["DNS", "TCP", "TLS", "ApiVersions", "SASL", "Metadata"]
        if how.tls_context is None:
            names.remove("TLS")
        if how.sasl is None:
            names.remove("SASL")
        assert [(step.name, step.ok) for step in steps] == [(name, True) for name in names], steps
        details = {step.name: step.detail for step in steps}
        assert f"Apache Kafka {release}," in details["ApiVersions"]
        assert "1 broker: " in details["Metadata"]


async def test_the_doctor_on_what_does_not_fit_a_listener(secured: RunningBroker) -> None:
    wrong = Security.sasl_plain("alice", CANARY, ca_file=tls.certificate())
    cases = [
        (secured.sasl_tls_bootstrap, wrong, "SASL", Cause.PASSWORD),
        (secured.sasl_bootstrap, Security.plaintext(), "Metadata", Cause.SASL_MISSING),
        (secured.bootstrap, security("PLAIN", encrypted=False), "SASL", Cause.SASL_UNWANTED),
        (secured.tls_bootstrap, Security.plaintext(), "ApiVersions", Cause.TLS_LISTENER),
        (secured.bootstrap, Security.tls(), "TLS", Cause.PLAINTEXT_LISTENER),
        (secured.tls_bootstrap, Security.tls(), "TLS", Cause.UNKNOWN_AUTHORITY),
    ]
    for bootstrap, how, name, cause in cases:
        steps = await steps_of(bootstrap, how)
        assert (steps[-1].name, steps[-1].cause) == (name, cause), steps
        assert CANARY not in repr(steps)
