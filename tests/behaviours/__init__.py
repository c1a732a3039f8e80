"""Named behaviours of the clients, equal on the embedded cluster and on real Apache Kafka."""
