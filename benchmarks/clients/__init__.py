"""Adapters: one module per client and direction, each entry a function of a ``Job``."""
