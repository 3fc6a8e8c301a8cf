"""A real broker inside a test process: `with barnabas.testing.Broker() as broker: ...`."""
