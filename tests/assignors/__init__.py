"""Compare assignments and bytes with those of the assignors of Apache Kafka's own client.

Needs Java and Maven, and fails without them.
"""
