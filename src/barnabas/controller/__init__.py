"""The controller: decides about topics, partitions, leaders and configs, and persists through the registry.

`replication_control` holds pure functions from a metadata image and a request to changes; `controller` runs them. It
must never touch a log or a client connection.
"""
