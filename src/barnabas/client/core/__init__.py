"""The part of the clients without socket and clock: state machines that are told what arrived and what time it is.

Both fronts (synchronous, asyncio) drive the same objects. Nothing here may import asyncio, socket, select, ssl,
threading or time; import-linter checks it.
"""
