"""Stand-ins for mypyc's types and decorators, for compiled modules that run as plain Python. Never compiled itself."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

__all__ = ["i32", "i64", "mypyc_attr"]

if TYPE_CHECKING:
    from mypy_extensions import i32 as i32
    from mypy_extensions import i64 as i64
    from mypy_extensions import mypyc_attr as mypyc_attr
else:
    i32 = i64 = int
    _Class = TypeVar("_Class", bound=type)

    def mypyc_attr(**_: object) -> Callable[[_Class], _Class]:
        """Does nothing: the options are for the compiler."""
        return lambda cls: cls
