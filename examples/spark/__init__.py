"""Pipelines of PySpark on topics: ``python -m examples.spark.audit``, ``.last_values``."""
