"""The connections between the brokers of a cluster: who may speak as a broker, requests to other brokers, forwarding.

Main classes: `InterBrokerListener` for the connections that other brokers make, `PeerConnections` for those that this
broker makes. A broker without peers must never import it.
"""
