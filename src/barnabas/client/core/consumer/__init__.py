"""The consumer without I/O: membership in a group, offsets, and what ties them to subscription and fetching.

Main classes: `Membership`, `Commits`, `ConsumerCore`. It must never know a socket, a thread or a loop.
"""
