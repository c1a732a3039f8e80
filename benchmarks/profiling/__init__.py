"""Where kclient's time goes per record: ``python -m benchmarks --profile``."""
