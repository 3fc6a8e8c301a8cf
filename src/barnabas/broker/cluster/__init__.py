"""The part of a broker in a cluster of several: heartbeats, the duties of the controller, metadata, in-sync replicas,
followers and their leaders.

Main classes: `ClusterMember`, `ReplicaFetcherManager`. One broker alone never imports this package.
"""
