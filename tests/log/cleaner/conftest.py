"""Logs with cleaners; the compaction kernels as they are built and as plain Python."""

import importlib.util
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import barnabas
from barnabas.log.cleaner import cleaned_segment
from barnabas.log.cleaner import cleaner as rewrite
from barnabas.records import compaction_kernel, offset_map_kernel
from log.cleaner.cleaner_rig import CleanerRig


@pytest.fixture(autouse=True, scope="session")
def quiet_cleaner() -> Iterator[None]:
    """Failures of the cleaner are provoked by the hundred here: they are not worth a line each."""
    logger = logging.getLogger("barnabas.log.cleaner")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


def source_of(module: ModuleType) -> ModuleType:
    """The module's source, never compiled."""
    name = module.__name__.rpartition(".")[2]
    path = Path(barnabas.__file__).parent / "records" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_source", path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def source_kernels() -> tuple[ModuleType, ModuleType]:
    """Offset map and compaction as plain Python, the one using the other."""
    plain_map = source_of(offset_map_kernel)
    sys.modules["barnabas.records.offset_map_kernel"] = plain_map
    try:
        return plain_map, source_of(compaction_kernel)
    finally:
        sys.modules["barnabas.records.offset_map_kernel"] = offset_map_kernel


@pytest.fixture(scope="session", params=["compiled", "source"])
def kernels(request: pytest.FixtureRequest) -> Iterator[tuple[ModuleType, ModuleType]]:
    """(offset_map_kernel, compaction_kernel), which the cleaner uses for as long as the tests of this form run."""
    if request.param == "compiled":
        if not offset_map_kernel.is_compiled():
            pytest.skip("the kernels are not compiled here")
        yield offset_map_kernel, compaction_kernel
        return
    plain_map, plain = source_kernels()
    assert not plain_map.is_compiled()
    before = rewrite.OffsetMap, rewrite.BatchFilter, rewrite.check_crc
    rewrite.OffsetMap, rewrite.BatchFilter, rewrite.check_crc = (  # type: ignore[misc]
        plain_map.OffsetMap,
        plain.BatchFilter,
        plain_map.check_crc,
    )
    yield plain_map, plain
    rewrite.OffsetMap, rewrite.BatchFilter, rewrite.check_crc = before  # type: ignore[misc]
    assert cleaned_segment.BatchFilter is compaction_kernel.BatchFilter


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[Callable[..., CleanerRig]]:
    """`make_rig(segment_bytes=500)`."""
    made: list[CleanerRig] = []

    def make(**settings: Any) -> CleanerRig:
        rig = CleanerRig(tmp_path / "data", **settings)
        made.append(rig)
        return rig

    yield make
    for rig in made:
        rig.release()


@pytest.fixture
def rig(make_rig: Callable[..., CleanerRig]) -> CleanerRig:
    return make_rig()
