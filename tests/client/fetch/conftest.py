"""Fixtures of the clients' core."""

from collections.abc import Iterator

import pytest

from barnabas.client.fetch import columns, record_batch
from barnabas.records import columns_kernel, consumer_kernel

from .kernel_forms import SOURCE_COLUMNS, SOURCE_CONSUMER

CONSUMER_NAMES = ("RecordCursor", "RecordOrigin")


@pytest.fixture(params=["compiled", "source"], scope="module")
def consumer_kernels(request: pytest.FixtureRequest) -> Iterator[str]:
    """The kernels that `record_batch` and `columns` use."""
    compiled = request.param == "compiled"
    if compiled and not (consumer_kernel.is_compiled() and columns_kernel.is_compiled()):
        pytest.skip("the kernels are not compiled here")
    for name in CONSUMER_NAMES:
        setattr(record_batch, name, getattr(consumer_kernel if compiled else SOURCE_CONSUMER, name))
    columns.RecordColumns = columns_kernel.RecordColumns if compiled else SOURCE_COLUMNS.RecordColumns  # type: ignore[misc]
    yield request.param
    for name in CONSUMER_NAMES:
        setattr(record_batch, name, getattr(consumer_kernel, name))
    columns.RecordColumns = columns_kernel.RecordColumns  # type: ignore[misc]
