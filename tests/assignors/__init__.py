"""The same answers, and the same bytes, as the assignors of Apache Kafka's own client.

Needs Java and Maven, and fails without them.
"""
