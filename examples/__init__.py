"""Runnable examples; each file is one purpose, started with ``python -m examples.NAME``."""
