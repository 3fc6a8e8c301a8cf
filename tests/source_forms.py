"""The sources of compiled modules as modules of their own: both forms are tested beside each other."""

import importlib.util
from pathlib import Path
from types import ModuleType

import barnabas
from barnabas.records.compiled import record_walk

__all__ = ["source_of"]


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


RECORD_WALK = source_of(record_walk)
