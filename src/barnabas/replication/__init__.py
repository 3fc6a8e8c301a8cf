"""Partitions as a replica sees them: role, leader epoch, in-sync replicas, HighWatermark.

Main classes: `Partition`, `ReplicaManager`. It must never know requests or responses.
"""
