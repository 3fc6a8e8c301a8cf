"""The cluster's shared state: live brokers, the controller, and the leader and in-sync replicas of each partition.

Main classes: `Registry` (the interface), `EmbeddedRegistry` (SQLite, the default). It must never decide anything:
decisions belong to the controller.
"""
