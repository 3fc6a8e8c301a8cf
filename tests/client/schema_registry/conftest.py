"""The registry of these tests and of those of Spark's formats."""

from collections.abc import Iterator

import pytest

from client.schema_registry.fake_registry import FakeRegistry


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    fake = FakeRegistry()
    yield fake
    fake.server.shutdown()
    fake.server.server_close()
