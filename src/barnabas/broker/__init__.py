"""One broker: wires everything up, dispatches requests to handlers, parks what must wait.

Main parts: `server` (the only place that wires things up), `dispatch`, `handlers` (one file per API), `purgatory`,
`fetch_sessions`. It must never be imported by a client.
"""
