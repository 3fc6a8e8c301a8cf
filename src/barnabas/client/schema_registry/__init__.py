"""Reads schemas from a schema registry that speaks Confluent's HTTP API.

Main class: `registry_client.SchemaRegistryClient`. `avro_references` puts the schemas that an Avro schema refers to
into it. They know nothing of Kafka's brokers.
"""
