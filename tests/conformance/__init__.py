"""Scenarios that run on the embedded cluster and on Apache Kafka 4.3.0; the responses must agree.

    pytest tests/conformance --broker 4.3.0
    python -m tests.conformance fetch_sessions          both sides' responses, and the differences

`scenarios/` has the scenarios, one file per API or subject; `normalisation.toml` says which fields
cannot be equal, and why. A difference that isn't in there is a defect of the embedded cluster.
"""
