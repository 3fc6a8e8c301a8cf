"""CRC-32C from the extension module of the crc32c package.

The package itself is not imported: it reads its metadata for its version, by way of the e-mail parser. That takes 55 ms
of CPU, more than the start of a whole client.
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
        from crc32c import crc32c as found  # releases 2.7 to 2.9 have the extension

        return found
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    loaded: Callable[..., int] = module.crc32c
    return loaded


crc32c = _load()
