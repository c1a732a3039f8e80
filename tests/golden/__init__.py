"""Byte-for-byte equality with the message classes that Apache Kafka itself generates.

Needs Java and Maven, and fails without them.
"""
