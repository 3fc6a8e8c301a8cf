"""The kernel's source as a module of its own, never compiled, to be tested beside the compiled one."""

import importlib.util
from pathlib import Path
from types import ModuleType

from barnabas.records import kernel


def source_kernel() -> ModuleType:
    path = Path(kernel.__file__).parent / "kernel.py"
    spec = importlib.util.spec_from_file_location("kernel_source", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SOURCE = source_kernel()
