"""The controller: decides about topics, partitions, leaders and configs, and persists through the registry.

`decisions` holds pure functions from a metadata image and a wish to commands; `controller` runs them. It must never
touch a log or a client connection.
"""
