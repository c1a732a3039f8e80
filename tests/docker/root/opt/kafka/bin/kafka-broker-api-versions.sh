#!/bin/sh
# The tool of this name that Kafka's distribution has: health checks call it.
exec java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC \
  -Dorg.slf4j.simpleLogger.defaultLogLevel=error org.apache.kafka.tools.BrokerApiVersionsCommand "$@"
