"""Groups of different clients on Apache Kafka: kclient beside librdkafka, Java and the Python ones.

``python -m tests.mixed`` makes one group for each assignor that clients have in common. Each member
is a process of its own (``members``, which ``process`` starts) that reports what it owns and reads
in the lines of ``emitting``. While ``writer`` writes steadily, ``scenario`` lets members join,
leave, die and freeze. ``broker_view`` reads the coordinator's state, ``ledger`` keeps the members'
reports, ``judge`` finds what is wrong. ``tests.nodes.group_storm`` uses the same pieces on three
nodes.
"""
