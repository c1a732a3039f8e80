"""Support for all test rings: real brokers, raw topic administration, leak and skip policing.

Nothing in here imports kclient's client packages (network, cluster, producer, consumer, admin),
so that a fault in the client cannot hide itself behind its own test support.
"""
