"""Kafka's wire protocol without a socket: frames, headers, messages of every API version.

Main parts: `apis` (what is served at which versions), `framing` (sans-I/O), `codec` and `messages` (one class per API,
read from and written to each version), `produce` and `fetch` (the hot paths). It must never know a partition or a log.
"""
