"""The part of a broker in a cluster of several: heartbeats, the duties of the controller, metadata, in-sync replicas.

Main class: `ClusterMember`. One broker alone never imports this package.
"""
