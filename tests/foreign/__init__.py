"""Foreign Kafka clients, unchanged, on the embedded cluster and on Apache Kafka itself."""
