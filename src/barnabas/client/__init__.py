"""Clients of any Kafka broker over the wire. It must never import the broker."""
