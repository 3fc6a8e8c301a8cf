"""The broker, names and servers of the clients' tests."""

from client.conftest import broker, name, session_broker

__all__ = ["broker", "name", "session_broker"]
