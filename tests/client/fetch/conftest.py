"""Fixtures of the tests of fetches."""

from collections.abc import Iterator

import pytest

from barnabas.client.fetch import columns, record_batch
from barnabas.records.compiled import consumer_records, record_columns
from barnabas.records.compiled.record_walk import is_compiled

from .source_kernels import SOURCE_COLUMNS, SOURCE_CONSUMER

CONSUMER_NAMES = ("RecordCursor", "RecordOrigin")


@pytest.fixture(params=["compiled", "source"], scope="module")
def consumer_kernels(request: pytest.FixtureRequest) -> Iterator[str]:
    """The kernels that `record_batch` and `columns` use."""
    compiled = request.param == "compiled"
    if compiled and not is_compiled():
        pytest.skip("the kernels are not compiled here")
    for name in CONSUMER_NAMES:
        setattr(record_batch, name, getattr(consumer_records if compiled else SOURCE_CONSUMER, name))
    columns.RecordColumns = record_columns.RecordColumns if compiled else SOURCE_COLUMNS.RecordColumns  # type: ignore[misc]
    yield request.param
    for name in CONSUMER_NAMES:
        setattr(record_batch, name, getattr(consumer_records, name))
    columns.RecordColumns = record_columns.RecordColumns  # type: ignore[misc]
