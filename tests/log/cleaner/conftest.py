"""Logs with cleaners; the compaction kernels as they are built and as plain Python."""

from collections.abc import Iterator
from types import ModuleType

import pytest

from barnabas.log.cleaner import cleaned_segment
from barnabas.log.cleaner import cleaner as rewrite
from barnabas.records.compiled import batch_filter, offset_map
from barnabas.records.compiled.record_walk import is_compiled
from log.cleaner.cleaner_rig import CleanerRig, MakeRig
from log.cleaner.cleaner_rig import make_rig as make_rig
from log.cleaner.cleaner_rig import quiet_cleaner as quiet_cleaner
from source_forms import cleaner_sources


@pytest.fixture(scope="session", params=["compiled", "source"])
def kernels(request: pytest.FixtureRequest) -> Iterator[tuple[ModuleType, ModuleType]]:
    """(offset_map, batch_filter), which the cleaner uses for as long as the tests of this form run."""
    if request.param == "compiled":
        if not is_compiled():
            pytest.skip("the kernels are not compiled here")
        yield offset_map, batch_filter
        return
    plain_map, plain = cleaner_sources()
    assert not plain_map._COMPILED
    before = rewrite.OffsetMap, rewrite.BatchFilter, rewrite.check_crc
    rewrite.OffsetMap, rewrite.BatchFilter, rewrite.check_crc = (  # type: ignore[misc]
        plain_map.OffsetMap,
        plain.BatchFilter,
        plain_map.check_crc,
    )
    yield plain_map, plain
    rewrite.OffsetMap, rewrite.BatchFilter, rewrite.check_crc = before  # type: ignore[misc]
    assert cleaned_segment.BatchFilter is batch_filter.BatchFilter


@pytest.fixture
def rig(make_rig: MakeRig) -> CleanerRig:
    return make_rig()
