"""Every test of records runs twice where it can: on the compiled kernel and on its source as plain Python."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from walks import Walks

from barnabas.records import builder, reader, validation
from barnabas.records.compiled import record_walk
from source_forms import RECORD_WALK


def is_stale() -> bool:
    """Whether a kernel was built before its source was last changed. They are built together, into one file of code."""
    folder = Path(str(RECORD_WALK.__file__)).parent
    built = max(path.stat().st_mtime for path in folder.glob("*.so"))
    sources = [path for path in folder.glob("*.py") if list(folder.glob(f"{path.stem}.*.so"))]
    return built < int(max(path.stat().st_mtime for path in sources))


@pytest.fixture(autouse=True, params=["compiled", "source"], scope="session")
def record_kernel(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """The kernel that builder, reader and validation use."""
    if request.param == "compiled" and not record_walk.is_compiled():
        pytest.skip("the kernel is not compiled here")
    if request.param == "compiled" and is_stale():
        pytest.fail("the compiled kernel is older than its source: run `python setup.py build_ext --inplace`")
    chosen = record_walk if request.param == "compiled" else RECORD_WALK
    for module in (builder, reader, validation):
        module.record_walk = chosen  # type: ignore[attr-defined]
    yield chosen
    for module in (builder, reader, validation):
        module.record_walk = record_walk  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def walks(record_kernel: ModuleType) -> Walks:
    """All kernels in the form of `record_kernel`."""
    return Walks.of(record_kernel)
