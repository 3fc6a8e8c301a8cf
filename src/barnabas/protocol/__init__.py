"""Kafka's wire protocol without a socket: frames, headers, messages of every API version.

Main parts: `apis` (the served APIs and versions), `framing` (sans-I/O), `codec` and `messages` (a class for each API,
read and written in each version), `produce` and `fetch` (the hot paths). This package must never know a partition or a
log.
"""
