"""The consumer's kernels as plain Python, beside the compiled ones: what both forms do must be the same."""

import importlib.util
from pathlib import Path
from types import ModuleType

import barnabas.records
from barnabas.records import bulk_kernel, columns_kernel, consumer_kernel, kernel

__all__ = ["SOURCE_BULK", "SOURCE_COLUMNS", "SOURCE_CONSUMER", "source_of"]


def source_of(module: ModuleType) -> ModuleType:
    """The module's source, run as a module of its own."""
    name = module.__name__.rpartition(".")[2]
    spec = importlib.util.spec_from_file_location(f"{name}_source", Path(barnabas.records.__path__[0]) / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    source = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(source)
    return source


SOURCE_KERNEL = source_of(kernel)
SOURCE_CONSUMER = source_of(consumer_kernel)
SOURCE_COLUMNS = source_of(columns_kernel)
SOURCE_BULK = source_of(bulk_kernel)
for _module in (SOURCE_CONSUMER, SOURCE_COLUMNS, SOURCE_BULK):
    for _name in ("_long_varint", "_read_headers", "_signed", "_varint", "_varlong"):
        if hasattr(_module, _name):
            setattr(_module, _name, getattr(SOURCE_KERNEL, _name))
SOURCE_COLUMNS._end_of_headers = SOURCE_CONSUMER._end_of_headers  # type: ignore[attr-defined]
