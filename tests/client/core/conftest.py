"""Fixtures of the clients' core."""

from collections.abc import Iterator

import pytest

from barnabas.client.core import arrow_records, completed_fetch
from barnabas.records import columns_kernel, consumer_kernel

from .kernel_forms import SOURCE_COLUMNS, SOURCE_CONSUMER

CONSUMER_NAMES = ("ConsumerRecord", "RecordCursor", "RecordOrigin")


@pytest.fixture(params=["compiled", "source"], scope="module")
def consumer_kernels(request: pytest.FixtureRequest) -> Iterator[str]:
    """The kernels that `completed_fetch` and `arrow_records` use."""
    compiled = request.param == "compiled"
    if compiled and not (consumer_kernel.is_compiled() and columns_kernel.is_compiled()):
        pytest.skip("the kernels are not compiled here")
    for name in CONSUMER_NAMES:
        setattr(completed_fetch, name, getattr(consumer_kernel if compiled else SOURCE_CONSUMER, name))
    arrow_records.RecordColumns = columns_kernel.RecordColumns if compiled else SOURCE_COLUMNS.RecordColumns  # type: ignore[misc]
    yield request.param
    for name in CONSUMER_NAMES:
        setattr(completed_fetch, name, getattr(consumer_kernel, name))
    arrow_records.RecordColumns = columns_kernel.RecordColumns  # type: ignore[misc]
