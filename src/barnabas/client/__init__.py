"""Clients of any Kafka broker: `producer`, `consumer` and `admin` are the synchronous fronts, the `aio_` modules those
for asyncio.

What they know stands in `core`, state machines without sockets and clock; `drivers` bring both. `errors` has what a
client may raise beyond Kafka's own errors, `diagnosis` says why none can connect. It must never import the broker.
"""
