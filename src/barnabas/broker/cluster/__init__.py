"""The part of a broker in a cluster of several: heartbeats, the duties of the controller, metadata, in-sync replicas,
followers and their leaders, requests about transactions.

Main classes: `ClusterMember`, `ReplicaFetcherManager`, `RemoteVerification`, `RemoteMarkers`. One broker alone never
imports this package.
"""
