"""The sources of compiled modules as modules of their own: both forms are tested beside each other."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import barnabas
from barnabas.records.compiled import batch_filter, offset_map, record_walk

__all__ = ["cleaner_sources", "source_of"]


def source_of(module: ModuleType) -> ModuleType:
    """Returns a new module that runs the source of `module`, never compiled."""
    _, *folders, name = module.__name__.split(".")  # a compiled module has another `__file__`
    path = Path(barnabas.__path__[0], *folders, f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"{name}_source", path)
    assert spec is not None
    assert spec.loader is not None
    source = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(source)
    return source


def cleaner_sources() -> tuple[ModuleType, ModuleType]:
    """Returns the sources of offset map and batch filter, the second using the first."""
    plain_map = source_of(offset_map)
    sys.modules[offset_map.__name__] = plain_map
    try:
        return plain_map, source_of(batch_filter)
    finally:
        sys.modules[offset_map.__name__] = offset_map


RECORD_WALK = source_of(record_walk)
