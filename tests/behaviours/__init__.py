"""Named behaviours of the clients, the same on the embedded cluster and on real Apache Kafka."""
