"""Reads the log directories of Barnabas and of Kafka without a broker: archives and copies."""
