"""kclient beside the other Python clients: ``python -m benchmarks``."""
