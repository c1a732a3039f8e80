"""kclient beside librdkafka, kafka-python and aiokafka: each reads what the other wrote."""
