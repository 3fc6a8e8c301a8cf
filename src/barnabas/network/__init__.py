"""Sockets: the acceptor, connections with ordered replies and back-pressure, sendfile.

Main classes: `Acceptor`, `Connection`. It must never know what a request means.
"""
