"""Leaves out the tests whose client is not installed."""

from importlib.util import find_spec

#: It imports confluent-kafka at its first line.
collect_ignore = [] if find_spec("confluent_kafka") else ["test_prepared_transactions.py"]
