"""The schema registry of the client's tests."""

from client.schema_registry.conftest import registry as registry
