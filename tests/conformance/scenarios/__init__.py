"""The scenarios, one file per API or subject; `tests.conformance.scenario` finds them."""
