"""The clients of any Kafka broker: `producer/`, `consumer/` and `admin/`, each a state machine with a synchronous front
(`front.py`) and one for asyncio (`aio_front.py`).

`fetch/` reads records, for the consumer and for Spark; `settings/` has the settings under Kafka's names; `diagnosis/`
finds out why a client cannot connect; `schema_registry/` reads schemas. All clients send their requests by
`barnabas.connection`. Clients must never import the broker.
"""
