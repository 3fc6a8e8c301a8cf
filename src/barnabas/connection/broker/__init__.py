"""The connection to one broker: frames, API versions, SASL, requests in flight; and the states of all connections.

Main classes: `BrokerConnection` (the bytes of one connection), `ClusterConnections` (which connections are open, lost
or in backoff), `ClientRequest`. They know no API beyond those of the handshake, and no socket.
"""
