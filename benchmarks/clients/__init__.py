"""Adapters: one module per client and direction, each door a function of a ``Job``."""
