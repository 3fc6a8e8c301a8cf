"""CRC-32C, from the crc32c package's extension alone.

The package itself asks for its own version when it is imported, which reads its metadata by way of the e-mail parser:
55 ms of CPU, more than a whole client takes to start.
"""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec

__all__ = ["crc32c"]


def _load() -> "Callable[..., int]":
    package = find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    spec = PathFinder.find_spec("crc32c._crc32c", places)
    if spec is None or spec.loader is None:
        from crc32c import crc32c as found  # another layout than that of 2.7 to 2.9

        return found
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    loaded: Callable[..., int] = module.crc32c
    return loaded


crc32c = _load()
