"""Connections to brokers: requests and responses, versions, authentication, cluster metadata, retries and timers.

Main classes: `NetworkClient` (sends requests to a node, any node, a coordinator or the controller) and `Metadata` (the
cluster as brokers describe it). They are state machines without socket and clock; `drivers` bring both. This package
must never know a producer, a consumer or the members of a group.
"""
