"""A broker: makes and connects its parts, dispatches requests to handlers, delays what must wait.

Main parts: `server` (the only place that wires things up), `dispatch`, `handlers` (one file per API), `purgatory`,
`fetch_sessions`. It must never be imported by a client.
"""
