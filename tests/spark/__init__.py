"""The source for PySpark: against the embedded cluster, Apache Kafka, and Spark's own connector."""
