"""What the test rings share: real brokers, raw topic administration, leak and skip policing.

Nothing in here imports the client rooms of kclient (network, cluster, producer, consumer, admin),
so that a fault in the client cannot hide itself behind its own test support.
"""
