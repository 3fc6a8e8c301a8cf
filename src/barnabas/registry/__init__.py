"""The root of trust: who is alive, who is controller, what each partition's leader and in-sync replicas are.

Main classes: `Registry` (the interface), `EmbeddedRegistry` (SQLite, the default). It must never decide anything:
decisions belong to the controller.
"""
