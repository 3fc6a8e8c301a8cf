"""A broker: makes and connects its parts, dispatches requests to handlers, delays what must wait.

`server` makes and connects the parts, `services` lists those that handlers use. `requests` has the way from a frame to
a handler, `handlers` one module per API. No client imports this package.
"""
