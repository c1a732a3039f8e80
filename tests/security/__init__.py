"""SASL and TLS against a real broker of its own; `--broker` names the release, by default 4.3.0."""
