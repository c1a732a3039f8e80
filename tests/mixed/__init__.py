"""Groups of different clients on Apache Kafka: kclient beside librdkafka, Java and the Python ones.

``python -m tests.mixed`` makes one group for each assignor that clients share. Each member is a
process of its own (``members``, which ``process`` starts) and tells what it owns and reads, in the
lines of ``telling``. While ``writer`` writes steadily, ``scenario`` lets members join, leave, die
and freeze. ``broker_view`` says what the coordinator thinks, ``ledger`` keeps what members told,
``judge`` says what is wrong. ``tests.nodes.group_storm`` uses the same pieces on three nodes.
"""
