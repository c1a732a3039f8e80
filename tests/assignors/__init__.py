"""Answers and bytes beside those of the assignors of Apache Kafka's own client.

Needs Java and Maven, and fails without them.
"""
